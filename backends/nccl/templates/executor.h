// An AllReduce by a schedule: ncclSend, ncclRecv and reduction kernels in a stream.
//
//   stragglar::Executor executor(stragglar::kSchedule, comm, largest_buffer_in_bytes);
//   executor.all_reduce(in, out, count, ncclFloat32, ncclSum, stream);   // like ncclAllReduce
//
// A call only puts work into the stream: nothing waits on the host, nothing is allocated, and it can be
// captured into a CUDA graph. Calls of one executor share its scratch memory, so use it in one stream at a
// time. Make one call before you capture or measure: NCCL connects two ranks when they first talk to each
// other, and that does wait on the host.
//
// Nothing but the messages synchronises the ranks, so the result is right whichever rank is late. In every
// rank the rounds are in the order of the schedule; the first unfinished round of all waits for nothing
// but its own messages, whose other ends are also first in their streams: no deadlock.
//
// The ReduceScatter among the early ranks, where the schedule begins with one, is NCCL's own in a communicator of
// these ranks: ncclReduceScatter where all have equal shares in the order of their ranks, otherwise one group of
// ncclReduce, so that any count works. Pre::p2p sends the schedule's own messages instead. All other phases
// are point-to-point messages.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "failure.h"
#include "kernels.h"
#include "plan.h"
#include "schedule.h"

namespace stragglar {

// How the ReduceScatter before the late ranks is done.
enum class Pre { native, p2p };

class Executor {
 public:
  // comm: of `schedule.ranks` ranks; its device must be the current one.
  // most_bytes: the largest buffer that it will be called with; the same on every rank.
  // beside_bytes: reductions of messages of this size and up run beside the next messages, in a stream
  //     of their own. For shorter ones the two events would cost more than they gain.
  // pre: the same on every rank. Native needs a schedule that begins with a ReduceScatter; others use messages.
  // All ranks must make their executors in the same order: this may split the communicator.
  Executor(const Schedule& schedule, ncclComm_t comm, size_t most_bytes, size_t beside_bytes = 1 << 20,
           Pre pre = Pre::native)
      : schedule_(schedule), comm_(comm), most_bytes_(most_bytes), beside_bytes_(beside_bytes),
        native_(pre == Pre::native && schedule.scatter_rounds > 0) {
    int ranks = 0;
    cc(ncclCommCount(comm, &ranks), "ncclCommCount");
    cc(ncclCommUserRank(comm, &rank_), "ncclCommUserRank");
    if (ranks != schedule.ranks)
      throw Failure("the schedule is for " + std::to_string(schedule.ranks) + " ranks, the communicator has " +
                        std::to_string(ranks), 2);
    in_place_ = Plan(schedule, rank_, true, native_);
    out_of_place_ = Plan(schedule, rank_, false, native_);
    try {
      if (native_) split();
      allocate();
    } catch (...) {
      release();
      throw;
    }
  }
  ~Executor() { release(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Whether the ReduceScatter is NCCL's own.
  bool native() const { return native_; }

  // What has gone wrong in the communicator of the early ranks while it worked, e.g. because a rank is gone.
  ncclResult_t health() const {
    ncclResult_t asynchronous = ncclSuccess;
    if (!early_) return asynchronous;
    const ncclResult_t asked = ncclCommGetAsyncError(early_, &asynchronous);
    return asked == ncclSuccess ? asynchronous : asked;
  }

  // Gives up what is under way, after a failure: ranks that wait for this one can then end.
  void abort() {
    if (early_) (void)ncclCommAbort(early_);
    early_ = nullptr;
  }

  // Reduces over all ranks. `in` may be `out`; otherwise the two must not overlap, and `in` is not changed.
  // op: ncclSum, ncclProd, ncclMax, ncclMin or ncclAvg. Throws Failure.
  void all_reduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream) {
    begin(in, out, count, type, op, stream);
    if (count == 0) return;
    if (op == ncclAvg && is_float(type)) {
      // Before summing, as NCCL does: halves might overflow, and early ranks have the time.
      cc(launch_divide(out_, in_, count, type, schedule_.ranks, stream), "launch_divide");
      in_ = out_;
    }
    const Plan& plan = in_ == out_ ? in_place_ : out_of_place_;
    if (early_) scatter();
    for (const Round& round : plan.rounds()) run(round);
    now_ = nullptr;
    wait_for(std::max(made_[0], made_[1]));  // join: the caller's stream is done when everything is
    if (op == ncclAvg && !is_float(type))
      cc(launch_divide(out_, out_, count, type, schedule_.ranks, stream), "launch_divide");
  }

  // "rank 3, post round 5": of the call being made, for messages.
  std::string where() const {
    std::string text = "rank " + std::to_string(rank_);
    if (now_) text += std::string(", ") + schedule_.phases[now_->phase] + " round " + std::to_string(now_->number);
    return text;
  }

 private:
  struct Span {  // a range of chunks in elements
    size_t start, length;
  };

  void split() {
    const bool early = schedule_.early[rank_];
    cc(ncclCommSplit(comm_, early ? 0 : NCCL_SPLIT_NOCOLOR, rank_, &early_, nullptr), "ncclCommSplit");
    int member = 0;  // the key keeps the order of the ranks
    for (int rank = 0; rank < schedule_.ranks; ++rank) member_.push_back(schedule_.early[rank] ? member++ : -1);
    members_ = member;
    for (int c = 0; c < schedule_.chunks; ++c) {
      if (!shares_.empty() && schedule_.owners[c] == schedule_.owners[c - 1]) {
        ++shares_.back().count;
      } else {
        shares_.push_back({c, 1});
      }
    }
  }

  // The sum of each chunk over the early ranks, at its owner.
  void scatter() {
    if (equal_shares()) {
      const size_t length = span(shares_[0]).length;
      char* to = out_ + static_cast<size_t>(member_[rank_]) * length * size_;
      cc(ncclReduceScatter(in_, to, length, type_, op_, early_, stream_), "ncclReduceScatter");
      return;
    }
    cc(ncclGroupStart(), "ncclGroupStart");
    for (const Range& share : shares_) {
      const Span part = span(share);
      const int root = member_[schedule_.owners[share.first]];
      if (part.length == 0) continue;
      cc(ncclReduce(at(in_, part), at(out_, part), part.length, type_, op_, root, early_, stream_), "ncclReduce");
    }
    cc(ncclGroupEnd(), "ncclGroupEnd");
  }

  bool equal_shares() const {
    if (shares_.size() != static_cast<size_t>(members_)) return false;
    for (int i = 0; i < members_; ++i) {
      const Span part = span(shares_[i]);
      if (member_[schedule_.owners[shares_[i].first]] != i || part.length != span(shares_[0]).length) return false;
    }
    return true;
  }

  void allocate() {
    // Chunks are at most one element (8 bytes) longer than the average; 16 for the alignment, see slot().
    const size_t chunks = std::max(in_place_.longest(), out_of_place_.longest());
    slot_bytes_ = (chunks * (most_bytes_ / schedule_.chunks + 8) + 16 + 255) / 256 * 256;
    cc(cudaMalloc(&scratch_, kSlots * slot_bytes_), "cudaMalloc");
    cc(cudaStreamCreateWithFlags(&beside_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (int slot = 0; slot < kSlots; ++slot) {
      cc(cudaEventCreateWithFlags(&arrived_[slot], cudaEventDisableTiming), "cudaEventCreateWithFlags");
      cc(cudaEventCreateWithFlags(&reduced_[slot], cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
  }

  void release() {  // also after a failure, so the codes say nothing new
    for (int slot = 0; slot < kSlots; ++slot) {
      if (arrived_[slot]) (void)cudaEventDestroy(arrived_[slot]);
      if (reduced_[slot]) (void)cudaEventDestroy(reduced_[slot]);
    }
    if (beside_) (void)cudaStreamDestroy(beside_);
    if (scratch_) (void)cudaFree(scratch_);
    if (early_) (void)ncclCommDestroy(early_);
  }

  void begin(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream) {
    size_ = element_size(type);
    if (size_ == 0) throw Failure(where() + ": this element type is not supported", 2);
    if (op != ncclAvg && !can_reduce(op)) throw Failure(where() + ": this reduction is not supported", 2);
    if (count * size_ > most_bytes_)
      throw Failure(where() + ": " + std::to_string(count * size_) + " bytes, but the executor was made for " +
                        std::to_string(most_bytes_), 2);
    in_ = static_cast<const char*>(in);
    out_ = static_cast<char*>(out);
    count_ = count;
    type_ = type;
    op_ = op == ncclAvg ? ncclSum : op;
    stream_ = stream;
    now_ = nullptr;
    made_[0] = made_[1] = waited_ = -1;
  }

  void run(const Round& round) {
    now_ = &round;
    wait_for(round.needs);
    for (const Range& range : round.bring) {
      const Span part = span(range);
      copy(at(out_, part), at(in_, part), part);
    }
    exchange(round);
    if (round.receives && !round.direct && span(round.receive).length > 0) apply(round);
  }

  // Both messages at the same time: in a swap, each rank would wait for the other for ever.
  void exchange(const Round& round) {
    const Span send = span(round.send), receive = span(round.receive);
    const bool sends = round.sends && send.length > 0, receives = round.receives && receive.length > 0;
    if (!sends && !receives) return;
    cc(ncclGroupStart(), "ncclGroupStart");
    if (sends) {
      const char* from = at(round.send_from_input ? in_ : out_, send);
      cc(ncclSend(from, send.length, type_, round.to, comm_, stream_), "ncclSend");
    }
    if (receives) {
      char* to = round.direct ? at(out_, receive) : slot(round, receive);
      cc(ncclRecv(to, receive.length, type_, round.from, comm_, stream_), "ncclRecv");
    }
    cc(ncclGroupEnd(), "ncclGroupEnd");
  }

  void apply(const Round& round) {
    const Span part = span(round.receive);
    const char* incoming = slot(round, part);
    if (round.apply == Apply::copy) {
      copy(at(out_, part), incoming, part);
    } else if (round.reduction < 0) {
      reduce(round, part, incoming, stream_);
    } else if (part.length * size_ < beside_bytes_) {
      // The plan had it run beside, after those before it; here it has to wait for them.
      wait_for(round.reduction);
      reduce(round, part, incoming, stream_);
    } else {
      reduce_beside(round, part, incoming);
    }
  }

  void reduce_beside(const Round& round, Span part, const char* incoming) {
    cc(cudaEventRecord(arrived_[round.slot], stream_), "cudaEventRecord");
    cc(cudaStreamWaitEvent(beside_, arrived_[round.slot], 0), "cudaStreamWaitEvent");
    reduce(round, part, incoming, beside_);
    cc(cudaEventRecord(reduced_[round.slot], beside_), "cudaEventRecord");
    made_[round.slot] = round.reduction;
  }

  // Lets the stream wait until the reductions that ran beside are over up to this one. They end in order, so
  // any later event will do. Short and empty ones did not run beside: then, all that did.
  void wait_for(int reduction) {
    const int older = made_[0] < made_[1] ? 0 : 1;
    const int slot = made_[older] >= reduction ? older : 1 - older;
    if (reduction <= waited_ || made_[slot] <= waited_) return;
    cc(cudaStreamWaitEvent(stream_, reduced_[slot], 0), "cudaStreamWaitEvent");
    waited_ = made_[slot];
  }

  void reduce(const Round& round, Span part, const char* incoming, cudaStream_t stream) {
    const char* own = at(round.reduce_from_input ? in_ : out_, part);
    const bool own_first = rank_ < round.from;  // see launch_reduce
    const char* first = own_first ? own : incoming;
    const char* second = own_first ? incoming : own;
    cc(launch_reduce(at(out_, part), first, second, part.length, type_, op_, stream), "launch_reduce");
  }

  void copy(char* to, const char* from, Span part) {
    if (part.length == 0) return;
    cc(cudaMemcpyAsync(to, from, part.length * size_, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
  }

  Span span(Range range) const {
    const size_t start = chunk_start(range.first, count_, schedule_.chunks);
    return {start, chunk_start(range.first + range.count, count_, schedule_.chunks) - start};
  }

  template <class T>
  T* at(T* base, Span part) const {
    return base + part.start * size_;
  }

  // Chunks begin anywhere. What is received lies as far from a 16-byte boundary as what it is reduced with,
  // so that the kernel can load both 16 bytes at a time.
  char* slot(const Round& round, Span part) const {
    return scratch_ + round.slot * slot_bytes_ + reinterpret_cast<uintptr_t>(at(out_, part)) % 16;
  }

  static bool is_float(ncclDataType_t type) { return type != ncclInt32 && type != ncclInt64; }

  template <class Result>
  void cc(Result result, const char* call) const {
    if (result != Result(0)) check(result, call, where());  // 0 is success in both libraries
  }

  const Schedule& schedule_;
  ncclComm_t comm_;
  size_t most_bytes_, beside_bytes_;
  bool native_;
  int rank_ = -1;
  ncclComm_t early_ = nullptr;  // of the ranks of the ReduceScatter; none on the others
  int members_ = 0;
  std::vector<int> member_;    // the place in it of every rank; -1: none
  std::vector<Range> shares_;  // runs of chunks of one owner
  Plan in_place_, out_of_place_;
  char* scratch_ = nullptr;
  size_t slot_bytes_ = 0;
  cudaStream_t beside_ = nullptr;
  cudaEvent_t arrived_[kSlots] = {}, reduced_[kSlots] = {};

  // Of the call being made.
  const Round* now_ = nullptr;
  const char* in_ = nullptr;
  char* out_ = nullptr;
  size_t count_ = 0, size_ = 0;
  ncclDataType_t type_ = ncclFloat32;
  ncclRedOp_t op_ = ncclSum;
  cudaStream_t stream_ = nullptr;
  // The reduction that ran beside from each slot, and the last that the stream has waited for; -1: none. Per
  // call: a captured stream must not wait for an event from before the capture.
  int made_[kSlots] = {-1, -1}, waited_ = -1;
};

}  // namespace stragglar
