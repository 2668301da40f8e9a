// The ring AllReduce as a schedule, so that it runs on the same point-to-point calls as the other one.
#pragma once

#include <vector>

#include "schedule.h"

namespace stragglar {

class Ring {
 public:
  explicit Ring(int ranks) {
    for (int step = 0; step < 2 * (ranks - 1); ++step) {
      const bool gather = step >= ranks - 1;
      for (int rank = 0; rank < ranks; ++rank) {
        const int chunk = (rank - step + 2 * ranks) % ranks;
        transfers_.push_back({rank, (rank + 1) % ranks, chunk, 1, gather ? Apply::copy : Apply::reduce});
      }
      rounds_.push_back({0, step, static_cast<int32_t>(transfers_.size())});
    }
    schedule_ = {"ring",     ranks,           ranks,         &kPhase, nullptr, 0, transfers_.data(),
                 rounds_.data(), rounds_.size(),    nullptr,       nullptr, 0};
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  const Schedule& schedule() const { return schedule_; }

 private:
  static constexpr const char* kPhase = "ring";
  std::vector<Transfer> transfers_;
  std::vector<RoundEnd> rounds_;
  Schedule schedule_;
};

}  // namespace stragglar
