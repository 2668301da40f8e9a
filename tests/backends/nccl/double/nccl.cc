// NCCL on a CPU, stricter than NCCL: a send ends when it has been received and no sooner, messages that meet must
// have equal counts and types, everything must lie in allocated memory, and a rank that waits while nothing
// happens anywhere is a stall. Each fault is named and ends the process.
#include "nccl.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "data.h"
#include "double.h"

namespace {

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat64:
    case ncclInt64: return 8;
    default: double_fault("an element type that the double does not know");
  }
}

struct Post {  // a message that its sender offers
  const void* from;
  size_t count;
  ncclDataType_t type;
  bool taken = false;
};

struct Meeting {  // one ncclAllReduce
  std::vector<const void*> in;
  std::vector<void*> out;
  bool done = false;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0, joined = 0;
  uint64_t progress = 0;
  bool aborted = false;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Post>>> posts;
  std::map<uint64_t, Meeting> meetings;

  void moved() {
    ++progress;
    changed.notify_all();
  }

  template <class Ready>
  void wait(std::unique_lock<std::mutex>& lock, const std::string& who, const std::string& what, Ready ready) {
    uint64_t seen = progress;
    while (!ready() && !aborted) {
      const auto limit = std::chrono::milliseconds(double_stall_ms());
      if (changed.wait_for(lock, limit) == std::cv_status::timeout && progress == seen && !ready())
        double_fault("stall: " + who + " " + what);
      seen = progress;
    }
  }
};

struct Message {
  bool send;
  void* at;
  size_t count;
  ncclDataType_t type;
  int peer;
};

std::mutex g_worlds_mutex;
std::map<std::string, std::shared_ptr<World>> g_worlds;

}  // namespace

struct DoubleComm {
  std::shared_ptr<World> world;
  int rank;
  uint64_t collectives = 0;
  std::string name() const { return "rank " + std::to_string(rank); }
};

namespace {

thread_local int t_depth = 0;
thread_local std::vector<Message> t_group;
thread_local ncclComm_t t_comm = nullptr;
thread_local cudaStream_t t_stream = nullptr;

void receive(World& world, std::unique_lock<std::mutex>& lock, const std::string& who, int rank, const Message& message) {
  auto& posts = world.posts[{message.peer, rank}];
  world.wait(lock, who, "waits for a message from " + std::to_string(message.peer) + " that is never sent",
             [&] { return !posts.empty(); });
  if (world.aborted) return;
  const std::shared_ptr<Post> post = posts.front();
  posts.pop_front();
  if (post->count != message.count || post->type != message.type)
    double_fault("mismatch: " + who + " expects " + std::to_string(message.count) + " elements from rank " +
                 std::to_string(message.peer) + ", which sends " + std::to_string(post->count));
  lock.unlock();
  std::memcpy(message.at, post->from, message.count * size_of(message.type));
  lock.lock();
  post->taken = true;
  world.moved();
}

void exchange(ncclComm_t comm, const std::vector<Message>& messages) {
  World& world = *comm->world;
  std::unique_lock<std::mutex> lock(world.mutex);
  std::vector<std::pair<int, std::shared_ptr<Post>>> sent;
  for (const Message& m : messages) {
    if (!m.send) continue;
    sent.emplace_back(m.peer, std::make_shared<Post>(Post{m.at, m.count, m.type}));
    world.posts[{comm->rank, m.peer}].push_back(sent.back().second);
  }
  world.moved();
  for (const Message& m : messages)
    if (!m.send) receive(world, lock, comm->name(), comm->rank, m);
  for (const auto& [peer, post] : sent)
    world.wait(lock, comm->name(), "sends to " + std::to_string(peer) + ", which never receives it",
               [&, one = post] { return one->taken; });
}

ncclResult_t add(Message message, ncclComm_t comm, cudaStream_t stream) {
  const std::string who = comm->name() + (message.send ? " ncclSend" : " ncclRecv");
  if (message.peer < 0 || message.peer >= comm->world->ranks || message.peer == comm->rank)
    double_fault("wrong peer: " + who + ": " + std::to_string(message.peer));
  if (message.count == 0) double_fault(who + ": an empty message");
  double_check_range(message.at, message.count * size_of(message.type), who);
  if (t_depth && t_comm && (t_comm != comm || t_stream != stream)) double_fault(who + ": a group of two streams");
  t_comm = comm;
  t_stream = stream;
  t_group.push_back(message);
  if (!t_depth) {
    ncclGroupStart();
    return ncclGroupEnd();
  }
  return ncclSuccess;
}

double joined(double a, double b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return a < b ? b : a;
    case ncclMin: return b < a ? b : a;
    default: return a + b;
  }
}

void reduce_all(Meeting& meeting, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  const size_t size = size_of(type), ranks = meeting.in.size();
  std::vector<char> result(count * size);
  for (size_t i = 0; i < count; ++i) {
    double total = stragglar::decode(static_cast<const char*>(meeting.in[0]) + i * size, type);
    for (size_t r = 1; r < ranks; ++r)
      total = joined(total, stragglar::decode(static_cast<const char*>(meeting.in[r]) + i * size, type), op);
    stragglar::encode(&result[i * size], op == ncclAvg ? total / static_cast<double>(ranks) : total, type);
  }
  for (void* out : meeting.out) std::memcpy(out, result.data(), result.size());
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
  std::shared_ptr<World> world;
  {
    std::lock_guard<std::mutex> lock(g_worlds_mutex);
    auto& place = g_worlds[std::string(id.internal, sizeof id.internal)];
    if (!place) place = std::make_shared<World>();
    world = place;
  }
  *comm = new DoubleComm{world, rank};
  std::unique_lock<std::mutex> lock(world->mutex);
  world->ranks = ranks;
  ++world->joined;
  world->moved();
  world->wait(lock, (*comm)->name(), "waits for the other ranks to join", [&] { return world->joined >= ranks; });
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard<std::mutex> lock(comm->world->mutex);
  comm->world->aborted = true;
  comm->world->moved();
  return ncclSuccess;  // not deleted: work in a stream may still look at it
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::lock_guard<std::mutex> lock(comm->world->mutex);
  *error = comm->world->aborted ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->world->ranks;
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
    double_enqueue(t_stream, [comm = t_comm, messages = std::move(t_group)] { exchange(comm, messages); });
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
  double_check_range(in, count * size_of(type), comm->name() + " ncclAllReduce");
  double_check_range(out, count * size_of(type), comm->name() + " ncclAllReduce");
  double_enqueue(stream, [=] {
    World& world = *comm->world;
    std::unique_lock<std::mutex> lock(world.mutex);
    Meeting& meeting = world.meetings[comm->collectives++];
    meeting.in.push_back(in);
    meeting.out.push_back(out);
    if (static_cast<int>(meeting.in.size()) == world.ranks) {
      reduce_all(meeting, count, type, op);
      meeting.done = true;
    }
    world.moved();
    world.wait(lock, comm->name(), "waits in ncclAllReduce", [&] { return meeting.done; });
  });
  return ncclSuccess;
}
