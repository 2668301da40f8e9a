// One rank's part of a schedule, with everything that can be known before the first call: where each send
// reads, where each receive lands, and which reductions must be over before a round may start.
#pragma once

#include <algorithm>
#include <vector>

#include "schedule.h"

namespace stragglar {

constexpr int kSlots = 2;  // places for what was received and is not reduced yet

struct Range {
  int first = 0, count = 0;  // chunks

  bool overlaps(const Range& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
};

// What this rank does in one round: at most one send and one receive, at the same time.
struct Round {
  int phase = 0, number = 0;
  bool sends = false, receives = false;
  int to = -1, from = -1;  // the two peers, which may differ
  Range send, receive;
  Apply apply = Apply::copy;
  // Out of place, what was not changed yet is read from the input. Where a message has both kinds of
  // chunks, `bring` is what must be copied from the input to the output first.
  bool send_from_input = false, reduce_from_input = false;
  std::vector<Range> bring;
  // A receive lands in the output only if it replaces what is there and nothing of it is being sent.
  bool direct = false;
  int slot = 0;
  // The next round sends what this one reduces: no point in reducing beside it.
  bool urgent = false;
  // Before this round, the reductions that run beside must be over up to this one; -1: none.
  int needs = -1;
  int reduction = -1;  // number of its own reduction among those that may run beside
};

class Plan {
 public:
  Plan() = default;
  // native: the ReduceScatter before is NCCL's own. What this rank owns is then in the output; of the chunks that
  // it does not own nothing is read before it is replaced.
  Plan(const Schedule& schedule, int rank, bool in_place, bool native) {
    collect(schedule, rank, native ? schedule.scatter_rounds : 0);
    std::vector<bool> in_output(schedule.chunks, in_place);
    for (int c = 0; native && c < schedule.chunks; ++c)
      if (schedule.owners[c] == rank) in_output[c] = true;
    place(in_output);
    order(schedule.chunks);
  }

  const std::vector<Round>& rounds() const { return rounds_; }
  // Chunks of the longest message that needs a slot.
  int longest() const { return longest_; }

 private:
  void collect(const Schedule& schedule, int rank, size_t start) {
    int32_t begin = start ? schedule.rounds[start - 1].end : 0;
    for (size_t r = start; r < schedule.round_count; ++r) {
      Round round;
      round.phase = schedule.rounds[r].phase;
      round.number = schedule.rounds[r].number;
      for (int32_t i = begin; i < schedule.rounds[r].end; ++i) take(schedule.transfers[i], rank, round);
      begin = schedule.rounds[r].end;
      if (round.sends || round.receives) rounds_.push_back(round);
    }
  }

  static void take(const Transfer& t, int rank, Round& round) {
    if (t.src == rank) {
      round.sends = true;
      round.to = t.dst;
      round.send = {t.first, t.count};
    } else if (t.dst == rank) {
      round.receives = true;
      round.from = t.src;
      round.receive = {t.first, t.count};
      round.apply = t.apply;
    }
  }

  // Decides what is read and written where.
  void place(std::vector<bool>& in_output) {
    for (Round& round : rounds_) {
      if (round.sends) round.send_from_input = reads_input(round, round.send, in_output);
      if (!round.receives) continue;
      if (round.apply == Apply::reduce) round.reduce_from_input = reads_input(round, round.receive, in_output);
      // Write after read within a round: the old chunk may be still on its way out.
      const bool busy = round.sends && !round.send_from_input && round.send.overlaps(round.receive);
      round.direct = round.apply == Apply::copy && !busy;
      if (!round.direct) longest_ = std::max(longest_, round.receive.count);
      mark(in_output, round.receive);
    }
  }

  // Whether all of a range is in the input only; if it is mixed, makes it be in the output.
  static bool reads_input(Round& round, Range range, std::vector<bool>& in_output) {
    std::vector<Range> missing;
    int total = 0;
    for (int c = range.first; c < range.first + range.count; ++c) {
      if (in_output[c]) continue;
      ++total;
      if (!missing.empty() && missing.back().first + missing.back().count == c) {
        ++missing.back().count;
      } else {
        missing.push_back({c, 1});
      }
    }
    if (total == range.count) return true;
    round.bring.insert(round.bring.end(), missing.begin(), missing.end());
    for (const Range& part : missing) mark(in_output, part);
    return false;
  }

  static void mark(std::vector<bool>& in_output, Range range) {
    std::fill_n(in_output.begin() + range.first, range.count, true);
  }

  // Finds the hazards between reductions that run beside and the messages of later rounds.
  void order(int chunks) {
    std::vector<int> changed(chunks, -1);  // the last reduction that ran beside and changed this chunk
    int used[kSlots] = {-1, -1};           // the last one that read this slot
    int slots = 0, reductions = 0;
    for (size_t i = 0; i < rounds_.size(); ++i) {
      Round& round = rounds_[i];
      if (round.sends) need(round, round.send, changed);  // read after write
      if (!round.receives) continue;
      const bool last = i + 1 == rounds_.size();
      round.urgent = last || (rounds_[i + 1].sends && rounds_[i + 1].send.overlaps(round.receive));
      const bool beside = round.apply == Apply::reduce && !round.urgent;
      if (!beside) need(round, round.receive, changed);  // write after write
      if (round.direct) continue;
      round.slot = slots++ % kSlots;
      round.needs = std::max(round.needs, used[round.slot]);  // the slot may be still in use
      used[round.slot] = -1;
      if (!beside) continue;
      round.reduction = used[round.slot] = reductions++;
      std::fill_n(changed.begin() + round.receive.first, round.receive.count, round.reduction);
    }
  }

  static void need(Round& round, Range range, const std::vector<int>& changed) {
    for (int c = range.first; c < range.first + range.count; ++c) round.needs = std::max(round.needs, changed[c]);
  }

  std::vector<Round> rounds_;
  int longest_ = 0;
};

}  // namespace stragglar
