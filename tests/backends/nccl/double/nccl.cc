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

struct Collective {  // what all ranks must agree on
  std::string call;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  std::string text() const {
    return call + " of " + std::to_string(count) + " elements of type " + std::to_string(type) + ", reduction " +
           std::to_string(op) + ", root " + std::to_string(root);
  }
};

struct Meeting {  // one collective operation
  std::string what;
  std::map<int, std::pair<const void*, void*>> parts;  // rank -> in, out
  bool done = false;
};

struct World;
struct SplitMeeting {  // one ncclCommSplit
  std::map<int, std::pair<int, int>> asked;  // rank -> color, key
  std::map<int, std::shared_ptr<World>> worlds;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  int ranks = 0, joined = 0;
  uint64_t progress = 0;
  bool aborted = false;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Post>>> posts;
  std::map<uint64_t, Meeting> meetings;
  std::map<uint64_t, std::shared_ptr<SplitMeeting>> splits;

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
  DoubleComm(std::shared_ptr<World> world_, int rank_) : world(std::move(world_)), rank(rank_) {}
  std::shared_ptr<World> world;
  int rank;
  uint64_t collectives = 0, splits = 0;
  std::string name() const { return "rank " + std::to_string(rank); }
};

namespace {

thread_local int t_depth = 0;
thread_local std::vector<Message> t_group;
thread_local std::vector<std::function<void()>> t_collectives;
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

void reduce_all(Meeting& meeting, const Collective& what) {
  const bool scatters = what.call == "ncclReduceScatter";
  const size_t size = size_of(what.type), ranks = meeting.parts.size(), total = what.count * (scatters ? ranks : 1);
  std::vector<char> result(total * size);
  for (size_t i = 0; i < total; ++i) {
    double sum = 0;
    for (const auto& [rank, part] : meeting.parts) {
      const double x = stragglar::decode(static_cast<const char*>(part.first) + i * size, what.type);
      sum = rank == 0 ? x : joined(sum, x, what.op);
    }
    stragglar::encode(&result[i * size], what.op == ncclAvg ? sum / static_cast<double>(ranks) : sum, what.type);
  }
  const size_t bytes = what.count * size;
  for (const auto& [rank, part] : meeting.parts)
    if (part.second) std::memcpy(part.second, &result[scatters ? static_cast<size_t>(rank) * bytes : 0], bytes);
}

void meet(ncclComm_t comm, const Collective& what, const void* in, void* out) {
  World& world = *comm->world;
  std::unique_lock<std::mutex> lock(world.mutex);
  Meeting& meeting = world.meetings[comm->collectives++];
  if (meeting.parts.empty()) meeting.what = what.text();
  if (meeting.what != what.text())
    double_fault("mismatch: " + comm->name() + " calls " + what.text() + ", another rank " + meeting.what);
  meeting.parts[comm->rank] = {in, out};
  if (static_cast<int>(meeting.parts.size()) == world.ranks) {
    reduce_all(meeting, what);
    meeting.done = true;
  }
  world.moved();
  world.wait(lock, comm->name(), "waits in " + what.call, [&] { return meeting.done; });
}

// Collective operations of a group are done one after the other, in the order of their calls.
ncclResult_t collective(const Collective& what, const void* in, size_t taken, void* out, size_t given, ncclComm_t comm,
                        cudaStream_t stream) {
  if (!comm) double_fault(what.call + ": no communicator");
  const std::string who = comm->name() + " " + what.call;
  double_check_range(in, taken * size_of(what.type), who);
  if (given) double_check_range(out, given * size_of(what.type), who);
  if (t_depth && t_comm && (t_comm != comm || t_stream != stream)) double_fault(who + ": a group of two streams");
  if (!t_depth) {
    double_enqueue(stream, [=] { meet(comm, what, in, out); });
    return ncclSuccess;
  }
  t_comm = comm;
  t_stream = stream;
  t_collectives.push_back([=] { meet(comm, what, in, out); });
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
  for (std::function<void()>& one : t_collectives) double_enqueue(t_stream, std::move(one));
  t_group.clear();
  t_collectives.clear();
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
  return collective({"ncclAllReduce", count, type, op, -1}, in, count, out, count, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  if (!comm) double_fault("ncclReduceScatter: no communicator");
  const size_t all = count * static_cast<size_t>(comm->world->ranks), size = size_of(type);
  const char *from = static_cast<const char*>(in), *to = static_cast<const char*>(out);
  const bool apart = to + count * size <= from || from + all * size <= to;
  if (!apart && to != from + static_cast<size_t>(comm->rank) * count * size)
    double_fault("wrong offset: " + comm->name() + " ncclReduceScatter: the output overlaps another rank's share");
  return collective({"ncclReduceScatter", count, type, op, -1}, in, all, out, count, comm, stream);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  if (!comm) double_fault("ncclReduce: no communicator");
  if (root < 0 || root >= comm->world->ranks)
    double_fault("wrong root: " + comm->name() + " ncclReduce: " + std::to_string(root));
  const size_t given = root == comm->rank ? count : 0;
  return collective({"ncclReduce", count, type, op, root}, in, count, given ? out : nullptr, given, comm, stream);
}

// Blocks until all ranks of the communicator have called it.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  World& world = *comm->world;
  std::unique_lock<std::mutex> lock(world.mutex);
  std::shared_ptr<SplitMeeting>& place = world.splits[comm->splits++];
  if (!place) place = std::make_shared<SplitMeeting>();
  const std::shared_ptr<SplitMeeting> split = place;
  split->asked[comm->rank] = {color, key};
  world.moved();
  world.wait(lock, comm->name(), "waits in ncclCommSplit",
             [&] { return static_cast<int>(split->asked.size()) == world.ranks; });
  *part = nullptr;
  if (world.aborted) return ncclRemoteError;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  int rank = 0, ranks = 0;
  for (const auto& [other, ask] : split->asked) {
    if (ask.first != color) continue;
    ++ranks;
    rank += std::make_pair(ask.second, other) < std::make_pair(key, comm->rank);
  }
  std::shared_ptr<World>& child = split->worlds[color];
  if (!child) {
    child = std::make_shared<World>();
    child->ranks = ranks;  // once: the first of them may be reading it by the time the last comes here
  }
  *part = new DoubleComm{child, rank};
  return ncclSuccess;
}
