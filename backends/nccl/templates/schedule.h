// What a schedule is: rounds of transfers between ranks, in constant tables.
//
// A table and one executor rather than a generated call for each transfer: NCCL is called equally often
// either way, and so the code that has to be right is the same few lines for every schedule.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stragglar {

// What the receiver does with what it receives.
enum class Apply : uint8_t { reduce, copy };

// One message: `count` chunks from chunk `first` on, from rank `src` to rank `dst`.
struct Transfer {
  int32_t src, dst, first, count;
  Apply apply;
};

// All transfers of a round read what the ranks held before the round. Its transfers are those from the end
// of the round before it up to `end`.
struct RoundEnd {
  int32_t phase, number, end;
};

struct Schedule {
  const char* name;
  int ranks;
  int chunks;
  const char* const* phases;
  const int32_t* late;  // the ranks that it expects to be late
  int late_count;
  const Transfer* transfers;
  const RoundEnd* rounds;
  size_t round_count;
  // Where the first rounds are a ReduceScatter among some ranks and no more: the rank that ends with each chunk's sum,
  // for each rank whether it takes part, and the number of those rounds. Otherwise nullptr, nullptr, 0.
  const int32_t* owners;
  const bool* early;
  size_t scatter_rounds;
};

// The schedule that this project was made for: see schedule.cc.
extern const Schedule kSchedule;

// Where chunk c of a buffer of `count` elements begins: floor(c * count / chunks), without overflow.
// Chunks differ by one element at most; with fewer elements than chunks some are empty.
inline size_t chunk_start(size_t c, size_t count, size_t chunks) {
  return c * (count / chunks) + c * (count % chunks) / chunks;
}

}  // namespace stragglar
