// CUDA on a CPU: memory is poisoned with NaNs, a stream is a thread that works through a queue, a kernel is a
// loop over its threads. With DOUBLE_JITTER_US=n every kernel starts up to n microseconds late, so that an order
// that nothing enforces does not come about by luck. A capture records the work of all streams that joined it.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "double.h"

namespace {

using Clock = std::chrono::steady_clock;
using Work = std::function<void()>;

// What an event stands for since it was last recorded.
struct Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Clock::time_point when;
  DoubleGraph* graph = nullptr;  // recorded in a capture
  DoubleStream* stream = nullptr;
  size_t work = 0;  // of its stream in that capture, so far
};

std::mutex g_memory;
std::map<const char*, size_t> g_allocations;

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

}  // namespace

struct DoubleGraph {
  std::vector<Work> work;
  std::map<DoubleStream*, size_t> made, joined;  // pieces of work of each stream; those the first one waited for
  DoubleStream* first = nullptr;
};

struct DoubleEvent {
  std::shared_ptr<Mark> last;
};

struct DoubleStream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false, ending = false;
  DoubleGraph* capture = nullptr;  // touched by the host thread only
  std::thread worker;

  DoubleStream() : worker([this] { loop(); }) {}

  void loop() {
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      Work work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      work();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }

  void put(Work work) {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(std::move(work));
    changed.notify_all();
  }
};

void double_fault(const std::string& what) {
  std::fprintf(stderr, "double: %s\n", what.c_str());
  std::fflush(nullptr);
  _exit(kCaught);
}

bool double_seeded(const char* name) {
  const char* value = std::getenv("SEEDED_BUG");
  return value && std::string(name) == value;
}

int double_stall_ms() { return setting("DOUBLE_STALL_MS", 4000); }

void double_check_range(const void* pointer, size_t bytes, const std::string& who) {
  std::lock_guard<std::mutex> lock(g_memory);
  const char* at = static_cast<const char*>(pointer);
  auto next = g_allocations.upper_bound(at);
  if (next != g_allocations.begin()) {
    --next;
    if (at + bytes <= next->first + next->second) return;
  }
  double_fault("short buffer: " + who + ": " + std::to_string(bytes) + " bytes do not lie in one allocation");
}

void double_enqueue(cudaStream_t stream, Work work) {
  if (!stream) double_fault("the default stream is used");
  if (stream->capture) {
    stream->capture->work.push_back(std::move(work));
    ++stream->capture->made[stream];
    return;
  }
  stream->put(std::move(work));
}

void double_enqueue_kernel(cudaStream_t stream, Work work) {
  const int jitter = setting("DOUBLE_JITTER_US", 0);
  double_enqueue(stream, [=] {
    const size_t thread = std::hash<std::thread::id>()(std::this_thread::get_id());
    thread_local std::minstd_rand random(static_cast<unsigned>(thread));
    if (jitter) std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<unsigned>(jitter)));
    work();
  });
}

const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error of the double"; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = setting("DOUBLE_DEVICES", 64);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int) { return cudaSuccess; }

cudaError_t double_malloc(void** pointer, size_t bytes) {
  // Exactly as long as asked for, so that the address sanitizer sees the end.
  if (posix_memalign(pointer, 256, bytes ? bytes : 1) != 0) return cudaErrorInvalidValue;
  std::memset(*pointer, 0xff, bytes);  // NaN in every floating type, -1 in integers
  std::lock_guard<std::mutex> lock(g_memory);
  g_allocations[static_cast<char*>(*pointer)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (!pointer) return cudaSuccess;
  {
    std::lock_guard<std::mutex> lock(g_memory);
    if (!g_allocations.erase(static_cast<char*>(pointer))) double_fault("cudaFree of what was not allocated");
  }
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  double_check_range(kind == cudaMemcpyHostToDevice ? to : from, bytes, "cudaMemcpy");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  double_check_range(to, bytes, "cudaMemcpyAsync to");
  double_check_range(from, bytes, "cudaMemcpyAsync from");
  double_enqueue_kernel(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new DoubleStream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    std::lock_guard<std::mutex> lock(stream->mutex);
    stream->ending = true;
    stream->changed.notify_all();
  }
  stream->worker.join();
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  std::lock_guard<std::mutex> lock(stream->mutex);
  return stream->busy || !stream->queue.empty() ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture) double_fault("a captured stream is waited for on the host");
  std::unique_lock<std::mutex> lock(stream->mutex);
  stream->changed.wait(lock, [=] { return !stream->busy && stream->queue.empty(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new DoubleEvent;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto mark = std::make_shared<Mark>();
  event->last = mark;
  if (DoubleGraph* graph = stream->capture) {
    mark->graph = graph;
    mark->stream = stream;
    mark->work = graph->made[stream];
    return cudaSuccess;
  }
  stream->put([mark] {
    std::lock_guard<std::mutex> lock(mark->mutex);
    mark->done = true;
    mark->when = Clock::now();
    mark->changed.notify_all();
  });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::shared_ptr<Mark> mark = event->last;
  if (!mark) return cudaSuccess;  // never recorded: nothing to wait for
  if (mark->graph || stream->capture) {
    if (stream->capture && stream->capture != mark->graph)
      double_fault("a captured stream waits for an event from outside the capture");
    stream->capture = mark->graph;  // the work was recorded in an order that already respects this
    if (stream == mark->graph->first) mark->graph->joined[mark->stream] = mark->work;
    return cudaSuccess;
  }
  stream->put([mark] {
    std::unique_lock<std::mutex> lock(mark->mutex);
    mark->changed.wait(lock, [&] { return mark->done; });
  });
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  for (cudaEvent_t event : {from, to}) {
    std::lock_guard<std::mutex> lock(event->last->mutex);
    if (!event->last->done) return cudaErrorNotReady;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(to->last->when - from->last->when).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->capture = new DoubleGraph;
  stream->capture->first = stream;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture;
  for (const auto& [other, made] : (*graph)->made) {
    if (other != stream && (*graph)->joined[other] != made) double_fault("a capture ends with a stream that was not joined");
    other->capture = nullptr;
  }
  stream->capture = nullptr;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new DoubleGraph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : executable->work) double_enqueue(stream, work);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
