// Plays NCCL for ranks that are processes: a thread for each of their communicators makes the calls that the rank
// asks for, on the double of nccl.cc with all its checks. Ends when its standard input does.
//
//   hub SOCKET
//
// A rank that hangs up without ncclCommDestroy is dead: the others are told, as NCCL does where it can. With
// DOUBLE_SILENT=1 nobody is told, as over NVLink.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "double.h"
#include "kernels.h"
#include "nccl.h"
#include "wire.h"

namespace {

std::mutex g_mutex;
std::map<std::string, std::pair<int, std::set<int>>> g_joined;  // id -> ranks there should be, ranks seen
std::map<uint64_t, ncclComm_t> g_split;                         // ticket -> waits for a connection of its own
uint64_t g_tickets = 0;

// Memory of the double that comes back to the heap by itself.
struct Buffer {
  explicit Buffer(size_t bytes_) : bytes(bytes_) { (void)cudaMalloc(&at, bytes); }
  ~Buffer() { (void)cudaFree(at); }
  Buffer(const Buffer&) = delete;
  char* at = nullptr;
  size_t bytes;
};

struct Message {
  bool send = false;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = -1;
  std::unique_ptr<Buffer> data;
};

// One communicator of one rank. This thread reads what is asked, so that it also sees the rank die; another does it.
class Session {
 public:
  explicit Session(int fd) : wire_(fd) { (void)cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }

  void serve() {
    Ask ask{};
    if (!wire_.get_all(ask)) return;
    if (!(ask == Ask::join ? join() : adopt())) return;
    std::thread worker([this] { work(); });
    bool good = wire_.put_all(kFine);
    while (good && wire_.get_all(ask) && ask != Ask::leave) good = take(ask);
    if (ask != Ask::leave && !std::getenv("DOUBLE_SILENT")) (void)ncclCommAbort(comm_);
    put(nullptr);
    worker.join();
  }

 private:
  using Task = std::function<bool()>;

  bool join() {
    ncclUniqueId id;
    int ranks = 0, rank = 0;
    if (!wire_.get_all(id, ranks, rank)) return false;
    {
      std::lock_guard<std::mutex> lock(g_mutex);
      auto& [expected, seen] = g_joined[std::string(id.internal, sizeof id.internal)];
      if (expected && expected != ranks)
        double_fault("rank " + std::to_string(rank) + " joins " + std::to_string(ranks) + " ranks, another " +
                     std::to_string(expected));
      expected = ranks;
      if (rank < 0 || rank >= ranks || !seen.insert(rank).second)
        double_fault("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " joins twice, or is none");
    }
    return ncclCommInitRank(&comm_, ranks, id, rank) == ncclSuccess;
  }

  bool adopt() {
    uint64_t ticket = 0;
    if (!wire_.get_all(ticket)) return false;
    std::lock_guard<std::mutex> lock(g_mutex);
    comm_ = g_split.at(ticket);
    g_split.erase(ticket);
    return true;
  }

  bool take(Ask ask) {
    switch (ask) {
      case Ask::exchange: return take_exchange();
      case Ask::split: return take_split();
      case Ask::all_reduce:
      case Ask::reduce_scatter:
      case Ask::reduce: return take_collective(ask);
      default: double_fault("the hub was asked something it does not know");
    }
  }

  bool take_exchange() {
    size_t count = 0;
    if (!wire_.get_all(count)) return false;
    auto messages = std::make_shared<std::vector<Message>>(count);
    for (Message& m : *messages) {
      if (!wire_.get_all(m.send, m.count, m.type, m.peer)) return false;
      m.data = std::make_unique<Buffer>(m.count * stragglar::element_size(m.type));
      if (m.send && !wire_.get(m.data->at, m.data->bytes)) return false;
    }
    put([this, messages] { return exchange(*messages); });
    return true;
  }

  bool exchange(const std::vector<Message>& messages) {
    ncclGroupStart();
    for (const Message& m : messages) {
      if (m.send) ncclSend(m.data->at, m.count, m.type, m.peer, comm_, stream_);
      else ncclRecv(m.data->at, m.count, m.type, m.peer, comm_, stream_);
    }
    ncclGroupEnd();
    if (!finished()) return false;
    for (const Message& m : messages)
      if (!m.send && !wire_.put(m.data->at, m.data->bytes)) return false;
    return true;
  }

  bool take_collective(Ask ask) {
    size_t count = 0, taken = 0, given = 0;
    ncclDataType_t type{};
    ncclRedOp_t op{};
    int root = 0;
    if (!wire_.get_all(count, type, op, root, taken, given)) return false;
    auto in = std::make_shared<Buffer>(taken), out = std::make_shared<Buffer>(given);
    if (!wire_.get(in->at, taken)) return false;
    put([=, this_ = this] {
      ncclComm_t comm = this_->comm_;
      if (ask == Ask::all_reduce) ncclAllReduce(in->at, out->at, count, type, op, comm, this_->stream_);
      else if (ask == Ask::reduce_scatter) ncclReduceScatter(in->at, out->at, count, type, op, comm, this_->stream_);
      else ncclReduce(in->at, out->at, count, type, op, root, comm, this_->stream_);
      return this_->finished() && this_->wire_.put(out->at, given);
    });
    return true;
  }

  // The rank fetches its part of the split on a connection of its own, by a ticket; 0: it is in no part.
  bool take_split() {
    int color = 0, key = 0;
    if (!wire_.get_all(color, key)) return false;
    put([=, this_ = this] {
      ncclComm_t part = nullptr;
      if (ncclCommSplit(this_->comm_, color, key, &part, nullptr) != ncclSuccess) return false;
      uint64_t ticket = 0;
      int ranks = 0, rank = 0;
      if (part) {
        (void)ncclCommCount(part, &ranks);
        (void)ncclCommUserRank(part, &rank);
        std::lock_guard<std::mutex> lock(g_mutex);
        ticket = ++g_tickets;
        g_split[ticket] = part;
      }
      return this_->finished() && this_->wire_.put_all(ticket, ranks, rank);
    });
    return true;
  }

  // Waits for what was asked; if it came to no good end, hangs up.
  bool finished() {
    (void)cudaStreamSynchronize(stream_);
    ncclResult_t error = ncclSuccess;
    (void)ncclCommGetAsyncError(comm_, &error);
    return error == ncclSuccess && wire_.put_all(kFine);
  }

  void put(Task task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  void work() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (!task) return;
      if (!task()) wire_.hang_up();
    }
  }

  Wire wire_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const sockaddr_un address = address_of(argv[1]);
  const int door = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (::bind(door, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(door, 64) != 0) {
    std::perror(argv[1]);
    return 2;
  }
  std::puts("open");
  std::fflush(stdout);
  std::thread([] {
    while (std::getchar() != EOF) {
    }
    std::_Exit(0);
  }).detach();
  for (;;) {
    const int fd = ::accept(door, nullptr, nullptr);
    if (fd >= 0) std::thread([fd] { Session(fd).serve(); }).detach();
  }
}
