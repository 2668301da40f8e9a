// Benchmark: the schedule, a ring of the same point-to-point calls and ncclAllReduce, with late ranks.
//
// A repetition: all ranks meet (a tiny ncclAllReduce), then each late rank's stream is kept busy for its
// delay, as if its computation took that long, while its host has queued the AllReduce behind already. The
// time is from the arrival of the last rank to the end of the last rank:
// max over ranks of (end - meeting) - max over ranks of (arrival - meeting), each by one GPU's own events.
// The three take turns in every repetition, so that a machine that slows down does so for all.
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap.h"
#include "data.h"
#include "executor.h"
#include "options.h"
#include "ring.h"

namespace stragglar {
namespace {

// Memory, stream and events of this rank, given back whatever happens.
class Device {
 public:
  Device(size_t bytes, const std::string& where) : where_(where) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", where);
    for (cudaEvent_t* event : {&met, &arrived, &ended}) check(cudaEventCreate(event), "cudaEventCreate", where);
    for (char** buffer : {&input, &output}) check(cudaMalloc(buffer, bytes), "cudaMalloc", where);
    check(cudaMalloc(&numbers, 4 * sizeof(double)), "cudaMalloc", where);
  }
  ~Device() {
    for (char* buffer : {input, output}) (void)cudaFree(buffer);
    (void)cudaFree(numbers);
    for (cudaEvent_t event : {met, arrived, ended})
      if (event) (void)cudaEventDestroy(event);
    if (stream) (void)cudaStreamDestroy(stream);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  double seconds(cudaEvent_t from, cudaEvent_t to) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime", where_);
    return milliseconds * 1e-3;
  }

  cudaStream_t stream = nullptr;
  cudaEvent_t met = nullptr, arrived = nullptr, ended = nullptr;
  char *input = nullptr, *output = nullptr;
  double* numbers = nullptr;  // for agree()

 private:
  std::string where_;
};

using Call = std::function<void(const void* in, void* out)>;

constexpr double kEndSeconds = 10;  // for taking things down after a failure

struct Result {
  std::vector<double> seconds;
  double wrong = 0;
  // nccl-tests' bandwidths in GB/s.
  double algbw(double bytes) const { return median() > 0 ? bytes / median() / 1e9 : 0; }
  double busbw(double bytes, int ranks) const { return algbw(bytes) * 2 * (ranks - 1) / ranks; }
  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  }
};

class Benchmark {
 public:
  Benchmark(const Options& options, const Place& place, ncclComm_t comm)
      : options_(options), place_(place), comm_(comm), where_("rank " + std::to_string(place.rank)),
        type_(types().at(options.type)), op_(ops().at(options.op)), size_(element_size(type_)),
        data_(place.ranks, type_, op_, options.seed),
        device_(options.end, where_), ring_(place.ranks),
        schedule_(kSchedule, comm, options.end, options.beside, options.native ? Pre::native : Pre::p2p),
        ring_executor_(ring_.schedule(), comm, options.end, options.beside), delay_(delay()) {}

  // After a failure: lets the work that waits for a rank that is gone end, here and on the others.
  void abort() {
    schedule_.abort();
    ring_executor_.abort();
  }

  // Returns the number of wrong elements.
  double run() {
    head();
    double wrong = 0;
    for (double bytes = static_cast<double>(options_.begin); bytes <= static_cast<double>(options_.end);
         bytes = options_.step ? bytes + static_cast<double>(options_.step) : bytes * options_.factor) {
      const size_t count = static_cast<size_t>(bytes) / size_;
      if (count == 0) continue;
      wrong += run_size(count);
    }
    foot();
    say("# %s\n", wrong == 0 ? (options_.check ? "every checked element of every rank is right" : "not checked")
                             : "some elements are WRONG");
    return wrong;
  }

 private:
  // How late this rank comes, in seconds.
  double delay() const {
    const int rank = place_.rank;
    if (!options_.delays.empty()) {
      if (static_cast<int>(options_.delays.size()) != place_.ranks)
        throw Failure("--delays needs one time for each of the " + std::to_string(place_.ranks) + " ranks", 2);
      return options_.delays[rank];
    }
    std::vector<int> late = options_.late;
    if (late.empty()) late.assign(kSchedule.late, kSchedule.late + kSchedule.late_count);
    if (late.empty() && options_.late_by > 0) throw Failure("the schedule expects nobody to be late: give --late", 2);
    for (int r : late)
      if (r >= place_.ranks) throw Failure("late rank " + std::to_string(r) + " does not exist", 2);
    return std::count(late.begin(), late.end(), rank) ? options_.late_by : 0;
  }

  // One of those that are compared.
  struct Contender {
    const char* name;
    Call call;
    bool rounds;  // see TestData::wrong
    Result out, in;
    double busbw = 0;  // sum over sizes and both places
    int measured = 0;
  };

  double run_size(size_t count) {
    const std::vector<char> data = data_.of_rank(place_.rank, count, size_);
    check(cudaMemcpy(device_.input, data.data(), data.size(), cudaMemcpyHostToDevice), "cudaMemcpy", where_);
    count_ = count;
    measure(&Contender::out, device_.input);
    measure(&Contender::in, device_.output);
    double wrong = 0;
    for (Contender& one : contenders_) wrong += row(one);
    return wrong;
  }

  std::vector<Contender> contenders() {
    const auto by = [this](Executor& executor) {
      return [this, &executor](const void* in, void* out) {
        executor.all_reduce(in, out, count_, type_, op_, device_.stream);
      };
    };
    const auto nccl = [this](const void* in, void* out) {
      check(ncclAllReduce(in, out, count_, type_, op_, comm_, device_.stream), "ncclAllReduce", where_);
    };
    return {{"schedule", by(schedule_), false, {}, {}},
            {"p2p-ring", by(ring_executor_), false, {}, {}},
            {"ncclAllReduce", nccl, true, {}, {}}};
  }

  // One algorithm at one size, out of place and in place.
  double row(Contender& one) {
    const double bytes = static_cast<double>(count_ * size_);
    say("%12.0f %12zu %5s %5s  %-14s", bytes, count_, options_.type.c_str(), options_.op.c_str(), one.name);
    for (const Result* result : {&one.out, &one.in}) {
      const double busbw = result->busbw(bytes, place_.ranks);
      say(" %10.1f %8.2f %8.2f ", result->median() * 1e6, result->algbw(bytes), busbw);
      options_.check ? say("%7.0f", result->wrong) : say("%7s", "N/A");
      one.busbw += busbw;
      ++one.measured;
    }
    say("\n");
    write_json(one, "out", one.out);
    write_json(one, "in", one.in);
    return one.out.wrong + one.in.wrong;
  }

  // All contenders at one size, in one place: `in` is the input, or the output for in place.
  void measure(Result Contender::*place, const char* in) {
    std::vector<std::unique_ptr<Graph>> graphs;
    for (Contender& one : contenders_) {
      one.*place = Result();
      refill();
      {
        // Connects the ranks, which must be over before anything is captured and waits for all of them on the host.
        const Watchdog watchdog(missing(), options_.time_limit);
        one.call(in, device_.output);
      }
      wait();
      if (options_.graph) graphs.push_back(std::make_unique<Graph>(*this, in, one.call));
    }
    for (int i = 0; i < options_.warmup + options_.repeat; ++i) {
      for (size_t c = 0; c < contenders_.size(); ++c) {
        Contender& one = contenders_[c];
        refill();
        const double seconds =
            repetition([&] { options_.graph ? graphs[c]->launch() : one.call(in, device_.output); });
        if (i >= options_.warmup) (one.*place).seconds.push_back(seconds);
        if (options_.check && i + 1 == options_.warmup + options_.repeat) (one.*place).wrong = wrong(one.rounds);
      }
    }
  }

  // Wrong elements of the result, over all ranks.
  double wrong(bool rounds) {
    std::vector<char> got(count_ * size_);
    check(cudaMemcpy(got.data(), device_.output, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy", where_);
    return agree(static_cast<double>(data_.wrong(got, size_, rounds)), 0, ncclSum).first;
  }

  // In place, the call destroys its input; out of place this makes sure that an old result is no new one.
  void refill() {
    check(cudaMemcpyAsync(device_.output, device_.input, count_ * size_, cudaMemcpyDeviceToDevice, device_.stream),
          "cudaMemcpyAsync", where_);
  }

  double repetition(const std::function<void()>& call) {
    const cudaStream_t stream = device_.stream;
    check(ncclAllReduce(device_.numbers, device_.numbers, 1, ncclDouble, ncclMax, comm_, stream), "ncclAllReduce",
          where_);
    check(cudaEventRecord(device_.met, stream), "cudaEventRecord", where_);
    if (delay_ > 0) check(launch_spin(static_cast<uint64_t>(delay_ * 1e9), stream), "launch_spin", where_);
    check(cudaEventRecord(device_.arrived, stream), "cudaEventRecord", where_);
    call();
    check(cudaEventRecord(device_.ended, stream), "cudaEventRecord", where_);
    wait();
    const auto [end, arrival] = agree(device_.seconds(device_.met, device_.ended),
                                      delay_ > 0 ? device_.seconds(device_.met, device_.arrived) : 0, ncclMax);
    return end - arrival;
  }

  // Two numbers, reduced over all ranks.
  std::pair<double, double> agree(double a, double b, ncclRedOp_t op) {
    double numbers[2] = {a, b};
    check(cudaMemcpy(device_.numbers, numbers, sizeof numbers, cudaMemcpyHostToDevice), "cudaMemcpy", where_);
    check(ncclAllReduce(device_.numbers, device_.numbers, 2, ncclDouble, op, comm_, device_.stream), "ncclAllReduce",
          where_);
    wait();
    check(cudaMemcpy(numbers, device_.numbers, sizeof numbers, cudaMemcpyDeviceToHost), "cudaMemcpy", where_);
    return {numbers[0], numbers[1]};
  }

  // Waits for the stream; another rank's death or a stall is a message and not a program that hangs.
  void wait() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.time_limit + delay_);
    for (;;) {
      const cudaError_t state = cudaStreamQuery(device_.stream);
      ncclResult_t asynchronous = ncclSuccess;
      check(ncclCommGetAsyncError(comm_, &asynchronous), "ncclCommGetAsyncError", where_);
      check(asynchronous, "NCCL, while it worked (is another rank gone?)", where_);
      check(schedule_.health(), "NCCL, among the early ranks (is one of them gone?)", where_);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check(state, "cudaStreamQuery", where_);
      if (std::chrono::steady_clock::now() > until) throw Failure(missing());
      std::this_thread::yield();
    }
  }

  std::string missing() const {
    return where_ + ": not over within " + std::to_string(options_.time_limit) + " s: another rank is missing";
  }

  // A call captured once and launched again and again.
  class Graph {
   public:
    Graph(Benchmark& owner, const void* in, const Call& call) : owner_(owner) {
      cudaGraph_t graph = nullptr;
      const cudaStream_t stream = owner.device_.stream;
      check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture", owner.where_);
      call(in, owner.device_.output);
      check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture", owner.where_);
      const cudaError_t made = cudaGraphInstantiate(&executable_, graph, 0);
      (void)cudaGraphDestroy(graph);
      check(made, "cudaGraphInstantiate", owner.where_);
    }
    ~Graph() { (void)cudaGraphExecDestroy(executable_); }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch() { check(cudaGraphLaunch(executable_, owner_.device_.stream), "cudaGraphLaunch", owner_.where_); }

   private:
    Benchmark& owner_;
    cudaGraphExec_t executable_ = nullptr;
  };

  void head() {
    check(ncclGetVersion(&version_), "ncclGetVersion", where_);
    int rank = -1;
    check(ncclCommUserRank(comm_, &rank), "ncclCommUserRank", where_);
    if (rank != place_.rank) throw Failure(where_ + ": NCCL calls it rank " + std::to_string(rank));
    const double latest = agree(delay_, 0, ncclMax).first;
    say("# stragglar: %s; NCCL %d; last rank late by %.6f s; times are from its arrival, medians of %d\n",
        kSchedule.name, version_, latest, options_.repeat);
    say("# before the late ranks: %s\n",
        schedule_.native() ? "NCCL's ReduceScatter of the early ones"
                           : options_.native ? "messages, since the schedule begins with no ReduceScatter" : "messages");
    say("#%51s %-37s%s\n", "", "out-of-place", "in-place");
    say("#%11s %12s %5s %5s  %-14s", "bytes", "count", "type", "redop", "algorithm");
    for (int i = 0; i < 2; ++i) say(" %10s %8s %8s %7s", "time (us)", "algbw", "busbw", "#wrong");
    say("\n");
  }

  void foot() const {
    say("# average busbw (GB/s):");
    for (const Contender& one : contenders_) say(" %s %.2f", one.name, one.measured ? one.busbw / one.measured : 0.0);
    say("\n");
  }

  void write_json(const Contender& one, const char* where, const Result& result) {
    if (place_.rank != 0 || options_.json.empty()) return;
    if (!json_) json_.reset(std::fopen(options_.json.c_str(), "w"));
    if (!json_) throw Failure("cannot write " + options_.json, 2);
    std::fprintf(json_.get(),
                 "{\"algorithm\": \"%s\", \"nccl\": %d, \"count\": %zu, \"place\": \"%s\", \"wrong\": %.0f,"
                 " \"seconds\": [",
                 one.name, version_, count_, where, result.wrong);
    for (size_t i = 0; i < result.seconds.size(); ++i)
      std::fprintf(json_.get(), "%s%.9f", i ? ", " : "", result.seconds[i]);
    std::fprintf(json_.get(), "]}\n");
  }

  // Prints on rank 0.
  void say(const char* format, ...) const {
    if (place_.rank != 0) return;
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::fflush(stdout);
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  const Options options_;
  const Place place_;
  ncclComm_t comm_;
  const std::string where_;
  const ncclDataType_t type_;
  const ncclRedOp_t op_;
  const size_t size_;
  const TestData data_;
  Device device_;
  Ring ring_;
  Executor schedule_, ring_executor_;
  const double delay_;
  size_t count_ = 0;  // elements at the size that is being measured
  std::vector<Contender> contenders_ = contenders();
  int version_ = 0;
  std::unique_ptr<std::FILE, Close> json_;
};

int benchmark(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  const Place place = find_place(options.place);
  if (place.ranks != kSchedule.ranks)
    throw Failure("the schedule is for " + std::to_string(kSchedule.ranks) + " ranks, " + std::to_string(place.ranks) +
                      " were started", 2);
  take_device(place);
  const std::string where = "rank " + std::to_string(place.rank);
  ncclComm_t comm = connect(place, options.id_file, options.time_limit);
  std::unique_ptr<Watchdog> ending;
  const auto abort = [&](const char* why) {
    // Memory cannot be given back while a kernel of NCCL waits for a rank that is gone: this ends the kernel, and
    // lets the other ranks end.
    if (ending) return;
    ending = std::make_unique<Watchdog>(why, kEndSeconds);
    (void)ncclCommAbort(comm);
  };
  double wrong = 0;
  try {
    Benchmark benchmark(options, place, comm);
    try {
      wrong = benchmark.run();
    } catch (const std::exception& failure) {
      benchmark.abort();
      abort(failure.what());
      throw;
    }
  } catch (const std::exception& failure) {
    abort(failure.what());
    throw;
  }
  ending = std::make_unique<Watchdog>(where + ": the measurements are over, but NCCL does not end", kEndSeconds);
  check(ncclCommDestroy(comm), "ncclCommDestroy", where);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace stragglar

int main(int argc, char** argv) {
  int code = 0;
#ifdef STRAGGLAR_MPI
  MPI_Init(&argc, &argv);
#endif
  try {
    code = stragglar::benchmark(argc, argv);
  } catch (const stragglar::Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    code = failure.code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stopped: %s\n", error.what());
    code = 1;
  }
#ifdef STRAGGLAR_MPI
  if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
  MPI_Finalize();
#endif
  return code;
}
