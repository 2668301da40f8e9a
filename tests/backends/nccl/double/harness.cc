// Runs the executor of an emitted project on the double: one thread a rank, every combination asked for.
//
//   harness SEQUENCE COUNTS TYPES OPS BESIDE [p2p]     e.g. harness stream 0,1,7,1000 f32,i64 sum,max 0
//
// SEQUENCE: `stream`, or `graph` to capture the calls and launch them twice. Exits with 1 and says where for a wrong
// element, also of the input of an out-of-place call, which must not change.
#include <atomic>
#include <cstdio>
#include <thread>

#include "data.h"
#include "executor.h"
#include "options.h"

namespace {

using namespace stragglar;

std::atomic<size_t> g_wrong{0};

struct Case {
  size_t count;
  std::string type, op;
  size_t beside;
  bool graph;
  Pre pre;
};

struct Buffer {
  // pad: bytes before the first element, so that it lies on no 16-byte boundary
  Buffer(const std::vector<char>& data, bool fill, size_t pad) : size(data.size()) {
    check(cudaMalloc(&base, pad + size), "cudaMalloc", "harness");
    at = base + pad;
    if (fill) check(cudaMemcpy(at, data.data(), size, cudaMemcpyHostToDevice), "cudaMemcpy", "harness");
  }
  ~Buffer() { (void)cudaFree(base); }
  Buffer(const Buffer&) = delete;
  std::vector<char> read() const {
    std::vector<char> data(size);
    check(cudaMemcpy(data.data(), at, size, cudaMemcpyDeviceToHost), "cudaMemcpy", "harness");
    return data;
  }
  char *base = nullptr, *at = nullptr;
  size_t size;
};

void expect(const Case& one, int rank, const char* what, size_t wrong) {
  if (!wrong) return;
  g_wrong += wrong;
  std::fprintf(stderr, "rank %d: %zu %s %s: %zu wrong elements %s\n", rank, one.count, one.type.c_str(), one.op.c_str(),
               wrong, what);
}

void run_case(const Case& one, int rank, ncclComm_t comm, cudaStream_t stream) {
  const ncclDataType_t type = types().at(one.type);
  const ncclRedOp_t op = ops().at(one.op);
  const size_t size = element_size(type);
  const TestData test(kSchedule.ranks, type, op);
  const std::vector<char> data = test.of_rank(rank, one.count, size);
  Buffer in(data, true, size), out(data, false, 0), both(data, true, 3 * size);
  Executor executor(kSchedule, comm, one.count * size, one.beside, one.pre);
  // Two calls with nothing between them, so that the second could trip over what the first left running.
  const auto calls = [&] {
    executor.all_reduce(in.at, out.at, one.count, type, op, stream);
    executor.all_reduce(both.at, both.at, one.count, type, op, stream);
  };
  if (one.graph) {
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture", "harness");
    calls();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture", "harness");
    check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch", "harness");
    check(cudaMemcpyAsync(both.at, in.at, data.size(), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync", "harness");
    check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch", "harness");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", "harness");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy", "harness");
  } else {
    calls();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize", "harness");
  }
  expect(one, rank, "out of place", test.wrong(out.read(), size));
  expect(one, rank, "in place", test.wrong(both.read(), size));
  expect(one, rank, "in the input", in.read() != data);
}

void run_rank(const std::vector<Case>& cases, int rank, ncclUniqueId id) {
  ncclComm_t comm;
  cudaStream_t stream;
  try {
    check(ncclCommInitRank(&comm, kSchedule.ranks, id, rank), "ncclCommInitRank", "harness");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", "harness");
    for (const Case& one : cases) run_case(one, rank, comm, stream);
    check(cudaStreamDestroy(stream), "cudaStreamDestroy", "harness");
    check(ncclCommDestroy(comm), "ncclCommDestroy", "harness");
  } catch (const Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    std::_Exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) return 2;
  const Pre pre = argc == 7 && std::string(argv[6]) == "p2p" ? Pre::p2p : Pre::native;
  std::vector<Case> cases;
  for (const std::string& count : parts_of(argv[2]))
    for (const std::string& type : parts_of(argv[3]))
      for (const std::string& op : parts_of(argv[4]))
        cases.push_back({bytes_of(count), type, op, bytes_of(argv[5]), std::string(argv[1]) == "graph", pre});
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSchedule.ranks; ++rank) ranks.emplace_back([&, rank] { run_rank(cases, rank, id); });
  for (std::thread& thread : ranks) thread.join();
  std::printf("%zu cases, %zu wrong elements\n", cases.size(), g_wrong.load());
  return g_wrong ? 1 : 0;
}
