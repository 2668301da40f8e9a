// NCCL for a rank in a process of its own: calls go to the hub, at the time when the stream comes to them. As with
// the real one, work that cannot end because another rank is gone stays in its stream until ncclCommAbort.
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>

#include "double.h"
#include "kernels.h"
#include "nccl.h"
#include "wire.h"

struct DoubleComm {
  DoubleComm(int fd, int ranks_, int rank_) : wire(fd), ranks(ranks_), rank(rank_) {}

  // Asks the hub something in turn; if the hub hangs up, another rank has.
  template <class Question>
  bool ask(Question question) {
    std::lock_guard<std::mutex> turn(asking);
    uint8_t answer = 0;
    return question() && wire.get_all(answer) && answer == kFine;
  }
  // In a stream: after a failure there is no end but by ncclCommAbort.
  template <class Work>
  void work(Work piece) {
    if (piece()) return;
    std::unique_lock<std::mutex> lock(mutex);
    failed = true;
    changed.wait(lock, [this] { return aborted; });
  }
  std::string name() const { return "rank " + std::to_string(rank); }

  Wire wire;
  int ranks, rank;
  std::mutex asking, mutex;
  std::condition_variable changed;
  bool failed = false, aborted = false;
};

namespace {

struct Message {
  bool send;
  void* at;
  size_t count;
  ncclDataType_t type;
  int peer;
  size_t bytes() const { return count * stragglar::element_size(type); }
};

thread_local int t_depth = 0;
thread_local std::vector<Message> t_group;
thread_local ncclComm_t t_comm = nullptr;
thread_local cudaStream_t t_stream = nullptr;

int call_hub() {
  const char* path = std::getenv("DOUBLE_HUB");
  if (!path) double_fault("DOUBLE_HUB does not say where the hub is");
  const sockaddr_un address = address_of(path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) double_fault("no hub");
  return fd;
}

bool exchange(DoubleComm& comm, const std::vector<Message>& messages) {
  std::unique_lock<std::mutex> turn(comm.asking);
  Wire& wire = comm.wire;
  if (!wire.put_all(Ask::exchange, messages.size())) return false;
  for (const Message& m : messages)
    if (!wire.put_all(m.send, m.count, m.type, m.peer) || (m.send && !wire.put(m.at, m.bytes()))) return false;
  uint8_t answer = 0;
  if (!wire.get_all(answer)) return false;
  for (const Message& m : messages)
    if (!m.send && !wire.get(m.at, m.bytes())) return false;
  return true;
}

ncclResult_t add(Message message, ncclComm_t comm, cudaStream_t stream) {
  const std::string who = comm->name() + (message.send ? " ncclSend" : " ncclRecv");
  double_check_range(message.at, message.bytes(), who);
  if (t_depth && t_comm && (t_comm != comm || t_stream != stream)) double_fault(who + ": a group of two streams");
  t_comm = comm;
  t_stream = stream;
  t_group.push_back(message);
  if (t_depth) return ncclSuccess;
  ncclGroupStart();
  return ncclGroupEnd();
}

// A collective operation that takes and gives so many bytes.
ncclResult_t collective(Ask what, const void* in, size_t taken, void* out, size_t given, size_t count,
                        ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  double_check_range(in, taken, comm->name() + " a collective's input");
  if (given) double_check_range(out, given, comm->name() + " a collective's output");
  double_enqueue(stream, [=] {
    comm->work([=] {
      Wire& wire = comm->wire;
      return comm->ask([&] { return wire.put_all(what, count, type, op, root, taken, given) && wire.put(in, taken); }) &&
             wire.get(out, given);
    });
  });
  return ncclSuccess;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote error" : "an error"; }

ncclResult_t ncclGetVersion(int* version) {
  *version = 0;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  for (char& c : id->internal) c = static_cast<char>('a' + random() % 26);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  *comm = new DoubleComm(call_hub(), ranks, rank);
  Wire& wire = (*comm)->wire;
  return (*comm)->ask([&] { return wire.put_all(Ask::join, id, ranks, rank); }) ? ncclSuccess : ncclRemoteError;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  (void)comm->wire.put_all(Ask::leave);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(comm->mutex);
  comm->aborted = true;
  comm->wire.hang_up();
  comm->changed.notify_all();
  return ncclSuccess;  // not deleted: work in a stream may still look at it
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::lock_guard<std::mutex> lock(comm->mutex);
  *error = comm->failed ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++t_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--t_depth > 0) return ncclSuccess;
  if (t_depth < 0) double_fault("ncclGroupEnd without ncclGroupStart");
  if (!t_group.empty())
    double_enqueue(t_stream, [comm = t_comm, messages = std::move(t_group)] {
      comm->work([&] { return exchange(*comm, messages); });
    });
  t_group.clear();
  t_comm = nullptr;
  t_stream = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({true, const_cast<void*>(from), count, type, peer}, comm, stream);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({false, to, count, type, peer}, comm, stream);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * stragglar::element_size(type);
  return collective(Ask::all_reduce, in, bytes, out, bytes, count, type, op, 0, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * stragglar::element_size(type), ranks = static_cast<size_t>(comm->ranks);
  return collective(Ask::reduce_scatter, in, bytes * ranks, out, bytes, count, type, op, 0, comm, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * stragglar::element_size(type), given = comm->rank == root ? bytes : 0;
  return collective(Ask::reduce, in, bytes, out, given, count, type, op, root, comm, stream);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  uint64_t ticket = 0;
  int ranks = 0, rank = 0;
  const bool good = comm->ask([&] { return comm->wire.put_all(Ask::split, color, key); }) &&
                    comm->wire.get_all(ticket, ranks, rank);
  if (!good) return ncclRemoteError;
  *part = nullptr;
  if (!ticket) return ncclSuccess;  // of no part
  *part = new DoubleComm(call_hub(), ranks, rank);
  Wire& wire = (*part)->wire;
  return (*part)->ask([&] { return wire.put_all(Ask::adopt, ticket); }) ? ncclSuccess : ncclRemoteError;
}
