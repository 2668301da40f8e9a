// The kernels on one GPU: every type and reduction against the host, bit by bit, and their bandwidth against that
// of a copy within the device. Needs no second GPU and makes no communicator.
//
//   kernel_check [-d TYPE] [-e SIZE] [-n N] [--json FILE]
//
// Right: for counts around every boundary of the kernels (16-byte loads, blocks, the largest grid), for each
// position of the buffers relative to a 16-byte boundary, in place and not, with NaNs, infinities, zeros of both
// signs, denormals and integers that overflow. Fast: bytes read and written in a second, of SIZE bytes a buffer.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data.h"
#include "failure.h"
#include "kernels.h"
#include "options.h"

namespace stragglar {
namespace {

constexpr const char* kHelp =
    "usage: kernel_check [options]\n"
    "  -d TYPE      this one only: f16 bf16 f32 f64 i32 i64\n"
    "  -e SIZE      bytes of each buffer for the bandwidth (default 256M; 0: do not measure)\n"
    "  -n N         launches that are measured together (default 20)\n"
    "  --json FILE  also writes every bandwidth there\n";
constexpr const char* kWhere = "kernel_check";
constexpr size_t kBoundary = 16;  // bytes
constexpr int kDivisors[] = {1, 2, 3, 7, 8, 1000};

struct Settings {
  size_t bytes = 256 << 20;
  int repeat = 20;
  std::string json, type;
  // Which types to look at.
  std::map<std::string, ncclDataType_t> chosen() const {
    if (type.empty()) return types();
    return {{type, types().at(type)}};
  }
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--help") throw Failure(kHelp, 0);
    if (i + 1 >= argc) throw Failure("option " + name + " needs a value\n" + kHelp, 2);
    if (name == "-d") settings.type = argv[i + 1];
    else if (name == "-e") settings.bytes = bytes_of(argv[i + 1]);
    else if (name == "-n") settings.repeat = integer_of(argv[i + 1]);
    else if (name == "--json") settings.json = argv[i + 1];
    else throw Failure("unknown option " + name + "\n" + kHelp, 2);
  }
  if (!settings.type.empty() && !types().count(settings.type))
    throw Failure("unknown type " + settings.type + "\n" + kHelp, 2);
  if (settings.repeat < 1) throw Failure("-n must be 1 or more", 2);
  return settings;
}

bool is_float(ncclDataType_t type) { return type != ncclInt32 && type != ncclInt64; }

// Memory of the device. It does not begin or end on a boundary where the test wants it not to.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes) { check(cudaMalloc(&at_, bytes), "cudaMalloc", kWhere); }
  ~Buffer() { (void)cudaFree(at_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void put(const std::vector<char>& data) {
    check(cudaMemcpy(at_, data.data(), data.size(), cudaMemcpyHostToDevice), "cudaMemcpy", kWhere);
  }
  std::vector<char> get() const {
    std::vector<char> data(bytes_);
    check(cudaMemcpy(data.data(), at_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy", kWhere);
    return data;
  }
  char* at(size_t offset = 0) const { return at_ + offset; }

 private:
  char* at_ = nullptr;
  size_t bytes_;
};

// Random bits: of a floating type, these are all exponents, denormals, infinities and NaNs. Some are rewritten to
// what is rare in them.
std::vector<char> operand(size_t count, ncclDataType_t type, uint64_t seed) {
  const size_t size = element_size(type);
  const double rare[] = {0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 65504.0, 6e-8};
  std::vector<char> data(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = scrambled(seed + i);
    std::memcpy(&data[i * size], &bits, size);
    const uint64_t choice = scrambled(bits) % 40;
    if (is_float(type) && choice < std::size(rare)) encode(&data[i * size], rare[choice], type);
    // Near one, so that sums and products also round and do not only overflow.
    if (is_float(type) && choice > 20) encode(&data[i * size], 1 + static_cast<double>(bits >> 40) * 1e-7, type);
  }
  return data;
}

template <class T>
T joined(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return b > a || b != b ? b : a;
    case ncclMin: return b < a || b != b ? b : a;
    default: return a + b;
  }
}

// Integers wrap, which C++ says of unsigned ones only.
template <class T, class U>
void join_whole(char* to, const char* a, const char* b, ncclRedOp_t op) {
  const T x = loaded<T>(a), y = loaded<T>(b);
  if (op == ncclMax || op == ncclMin) return store(to, joined(x, y, op));
  store(to, static_cast<T>(joined(static_cast<U>(x), static_cast<U>(y), op)));
}

// In double, and rounded once to the type: for one operation on shorter types that is the right rounding.
void join(char* to, const char* a, const char* b, ncclDataType_t type, ncclRedOp_t op) {
  if (type == ncclInt32) return join_whole<int32_t, uint32_t>(to, a, b, op);
  if (type == ncclInt64) return join_whole<int64_t, uint64_t>(to, a, b, op);
  encode(to, joined(decode(a, type), decode(b, type), op), type);
}

void divide(char* to, const char* from, ncclDataType_t type, int divisor) {
  if (type == ncclInt32) return store(to, loaded<int32_t>(from) / divisor);
  if (type == ncclInt64) return store(to, loaded<int64_t>(from) / divisor);
  encode(to, decode(from, type) / divisor, type);
}

// Bits, so that -0 is not 0; but a NaN may be any NaN.
bool same(const char* got, const char* right, ncclDataType_t type) {
  const size_t size = element_size(type);
  if (std::memcmp(got, right, size) == 0) return true;
  return is_float(type) && std::isnan(decode(got, type)) && std::isnan(decode(right, type));
}

// Where the buffers begin, in elements from a boundary, and which are the same buffer.
struct Layout {
  size_t out, a, b;
  char in_place;  // the operand that is also the output: 'a', 'b' or '-'
};

std::vector<Layout> layouts(size_t size) {
  std::vector<Layout> all;
  for (size_t k = 0; k < kBoundary / size; ++k)
    for (const char place : {'-', 'a', 'b'}) all.push_back({k, k, k, place});
  all.push_back({0, 1, 0, '-'});  // no common boundary: everything one by one
  all.push_back({1, 1, 0, '-'});
  all.push_back({0, 1, 1, '-'});
  return all;
}

class Checker {
 public:
  Checker() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", kWhere); }
  ~Checker() { (void)cudaStreamDestroy(stream_); }
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  size_t cases() const { return cases_; }
  size_t wrong() const { return wrong_; }

  void check_type(const std::string& name, ncclDataType_t type) {
    name_ = name;
    type_ = type;
    size_ = element_size(type);
    const size_t per = kBoundary / size_, block = 256 * per, grid = 2048 * block;
    for (const Layout& layout : layouts(size_)) {
      for (size_t count = 0; count <= 2 * per + 3; ++count) check_count(count, layout);
      for (const size_t count : {block - 1, block, block + 1, 3 * block + per + 1}) check_count(count, layout);
    }
    check_count(grid + block + per - 1, {1, 1, 1, '-'});  // more than one turn of the largest grid
  }

 private:
  void check_count(size_t count, const Layout& layout) {
    const std::vector<char> a = operand(count, type_, 1), b = operand(count, type_, 1 << 30);
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin}) check_reduce(count, layout, a, b, op);
    if (layout.in_place != 'b') {
      for (const int divisor : kDivisors) check_divide(count, layout, a, divisor);
    }
  }

  void check_reduce(size_t count, const Layout& layout, const std::vector<char>& a, const std::vector<char>& b,
                    ncclRedOp_t op) {
    Field out(*this, count, layout.out), first(*this, count, layout.a), second(*this, count, layout.b);
    first.put(a);
    second.put(b);
    const char* to_a = first.at();
    const char* to_b = second.at();
    Field& target = layout.in_place == 'a' ? first : layout.in_place == 'b' ? second : out;
    check(launch_reduce(target.at(), to_a, to_b, count, type_, op, stream_), "launch_reduce", kWhere);
    std::vector<char> right(count * size_);
    for (size_t i = 0; i < count * size_; i += size_) join(&right[i], &a[i], &b[i], type_, op);
    compare(target, right, "reduction " + std::to_string(op), layout);
  }

  void check_divide(size_t count, const Layout& layout, const std::vector<char>& a, int divisor) {
    Field out(*this, count, layout.out), in(*this, count, layout.a);
    in.put(a);
    Field& target = layout.in_place == 'a' ? in : out;
    check(launch_divide(target.at(), in.at(), count, type_, divisor, stream_), "launch_divide", kWhere);
    std::vector<char> right(count * size_);
    for (size_t i = 0; i < count * size_; i += size_) divide(&right[i], &a[i], type_, divisor);
    compare(target, right, "division by " + std::to_string(divisor), layout);
  }

  // A buffer and what lies around it, which a kernel must not touch.
  class Field {
   public:
    Field(const Checker& owner, size_t count, size_t offset)
        : offset_(offset * owner.size_), bytes_(count * owner.size_), buffer_(offset_ + bytes_ + kBoundary),
          whole_(offset_ + bytes_ + kBoundary, '\x5a') {
      buffer_.put(whole_);
    }
    void put(const std::vector<char>& data) {
      std::copy(data.begin(), data.end(), whole_.begin() + static_cast<std::ptrdiff_t>(offset_));
      buffer_.put(whole_);
    }
    char* at() const { return buffer_.at(offset_); }
    std::vector<char> get() const { return buffer_.get(); }
    size_t offset() const { return offset_; }
    // Whether everything but the data itself is as it was.
    bool intact(const std::vector<char>& got) const {
      return std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(offset_), whole_.begin()) &&
             std::equal(got.begin() + static_cast<std::ptrdiff_t>(offset_ + bytes_), got.end(),
                        whole_.begin() + static_cast<std::ptrdiff_t>(offset_ + bytes_));
    }

   private:
    size_t offset_, bytes_;
    Buffer buffer_;
    std::vector<char> whole_;
  };

  void compare(const Field& field, const std::vector<char>& right, const std::string& what, const Layout& layout) {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", kWhere);
    const std::vector<char> got = field.get();
    size_t wrong = field.intact(got) ? 0 : 1;
    for (size_t i = 0; i < right.size(); i += size_) wrong += !same(&got[field.offset() + i], &right[i], type_);
    ++cases_;
    wrong_ += wrong;
    if (wrong && complaints_++ < 10)
      std::fprintf(stderr, "%s, %s, %zu elements, %zu %zu %zu from a boundary, in place %c: %zu wrong%s\n",
                   name_.c_str(), what.c_str(), right.size() / size_, layout.out, layout.a, layout.b, layout.in_place,
                   wrong, field.intact(got) ? "" : ", and written outside");
  }

  cudaStream_t stream_ = nullptr;
  std::string name_;
  ncclDataType_t type_ = ncclFloat32;
  size_t size_ = 0, cases_ = 0, wrong_ = 0, complaints_ = 0;
};

// Bandwidths, of which the copy's is the yardstick.
class Meter {
 public:
  explicit Meter(const Settings& settings)
      : settings_(settings), a_(settings.bytes), b_(settings.bytes), out_(settings.bytes) {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", kWhere);
    for (cudaEvent_t* event : {&begun_, &ended_}) check(cudaEventCreate(event), "cudaEventCreate", kWhere);
  }
  ~Meter() {
    for (cudaEvent_t event : {begun_, ended_})
      if (event) (void)cudaEventDestroy(event);
    if (stream_) (void)cudaStreamDestroy(stream_);
  }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void run() {
    std::printf("# GB/s read and written, %d launches, %zu bytes a buffer\n#%5s %8s %10s %8s\n", settings_.repeat,
                settings_.bytes, "type", "op", "GB/s", "of copy");
    const auto copy = [&] { return cudaMemcpyAsync(out_.at(), a_.at(), settings_.bytes, cudaMemcpyDeviceToDevice, stream_); };
    copy_ = row("-", "copy", 2, settings_.bytes, copy);
    for (const auto& [name, type] : settings_.chosen()) {
      // Of zeros: the speed should not depend on the values, and no power is spent on flipping bits.
      const size_t count = settings_.bytes / element_size(type), bytes = count * element_size(type);
      for (const char* op : {"sum", "prod", "max", "min"})
        row(name, op, 3, bytes, [&, type = type] {
          return launch_reduce(out_.at(), a_.at(), b_.at(), count, type, ops().at(op), stream_);
        });
      row(name, "divide", 2, bytes,
          [&, type = type] { return launch_divide(out_.at(), a_.at(), count, type, 8, stream_); });
    }
  }

  void zero() {
    const std::vector<char> zeros(settings_.bytes);
    a_.put(zeros);
    b_.put(zeros);
  }

 private:
  template <class Launch>
  double row(const std::string& type, const char* op, int passes, size_t bytes, const Launch& launch) {
    for (int i = 0; i < 2; ++i) check(launch(), op, kWhere);  // not measured: the clock goes up, code is loaded
    check(cudaEventRecord(begun_, stream_), "cudaEventRecord", kWhere);
    for (int i = 0; i < settings_.repeat; ++i) check(launch(), op, kWhere);
    check(cudaEventRecord(ended_, stream_), "cudaEventRecord", kWhere);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", kWhere);
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begun_, ended_), "cudaEventElapsedTime", kWhere);
    const double moved = static_cast<double>(bytes) * passes * settings_.repeat;
    const double speed = milliseconds > 0 ? moved / milliseconds / 1e6 : 0;
    std::printf("%6s %8s %10.1f %7.1f%%\n", type.c_str(), op, speed, copy_ > 0 ? 100 * speed / copy_ : 100);
    write_json(type, op, bytes, speed);
    return speed;
  }

  void write_json(const std::string& type, const char* op, size_t bytes, double speed) {
    if (settings_.json.empty()) return;
    if (!json_) json_.reset(std::fopen(settings_.json.c_str(), "w"));
    if (!json_) throw Failure("cannot write " + settings_.json, 2);
    std::fprintf(json_.get(), "{\"type\": \"%s\", \"op\": \"%s\", \"bytes\": %zu, \"gb_per_s\": %.3f}\n", type.c_str(), op,
                 bytes, speed);
  }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  const Settings settings_;
  Buffer a_, b_, out_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begun_ = nullptr, ended_ = nullptr;
  double copy_ = 0;
  std::unique_ptr<std::FILE, Close> json_;
};

int kernel_check(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0)
    throw Failure(std::string("no GPU that can be used here: cudaGetDeviceCount: ") + cudaGetErrorString(found), 4);
  Checker checker;
  for (const auto& [name, type] : settings.chosen()) checker.check_type(name, type);
  std::printf("# %zu cases, %zu wrong elements\n", checker.cases(), checker.wrong());
  if (settings.bytes > 0) {
    Meter meter(settings);
    meter.zero();
    meter.run();
  }
  return checker.wrong() ? 1 : 0;
}

}  // namespace
}  // namespace stragglar

int main(int argc, char** argv) {
  try {
    return stragglar::kernel_check(argc, argv);
  } catch (const stragglar::Failure& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return failure.code;
  }
}
