// Test data whose right result is known exactly: integers so small that no order of reducing them rounds, and so
// large that the result fills the mantissa of its type. One wrong bit is then a wrong element, also the bits that
// are lost where a type is reduced in a shorter one: no tolerance is needed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <nccl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace stragglar {

constexpr size_t kPeriod = 65521;  // data repeats after this many elements: a prime, no chunk lines up with it

inline uint64_t scrambled(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
void store(char* at, T value) {
  std::memcpy(at, &value, sizeof value);
}
template <class T>
T loaded(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

inline void encode(char* at, double x, ncclDataType_t type) {
  switch (type) {
    case ncclFloat16: return store(at, __float2half_rn(static_cast<float>(x)));
    case ncclBfloat16: return store(at, __float2bfloat16_rn(static_cast<float>(x)));
    case ncclFloat32: return store(at, static_cast<float>(x));
    case ncclInt32: return store(at, static_cast<int32_t>(x));
    case ncclInt64: return store(at, static_cast<int64_t>(x));
    default: return store(at, x);
  }
}

inline double decode(const char* at, ncclDataType_t type) {
  switch (type) {
    case ncclFloat16: return __half2float(loaded<__half>(at));
    case ncclBfloat16: return __bfloat162float(loaded<__nv_bfloat16>(at));
    case ncclFloat32: return loaded<float>(at);
    case ncclInt32: return loaded<int32_t>(at);
    case ncclInt64: return static_cast<double>(loaded<int64_t>(at));
    default: return loaded<double>(at);
  }
}

// The inputs of all ranks and the right result.
class TestData {
 public:
  TestData(int ranks, ncclDataType_t type, ncclRedOp_t op, uint64_t seed = 0)
      : ranks_(ranks), type_(type), op_(op), seed_(seed) {}

  // One rank's input of `count` elements of `size` bytes.
  std::vector<char> of_rank(int rank, size_t count, size_t size) const {
    std::vector<char> data(count * size);
    for (size_t i = 0; i < std::min(count, kPeriod); ++i) encode(&data[i * size], element(rank, i), type_);
    for (size_t i = kPeriod; i < count; i += kPeriod)
      std::memcpy(&data[i * size], &data[0], std::min(kPeriod, count - i) * size);
    return data;
  }

  // How many elements of a result are not what they should be. A NaN is not.
  // rounds: the average was made with a rounded 1 / n, as NCCL does: an error of each operation is allowed.
  size_t wrong(const std::vector<char>& result, size_t size, bool rounds = false) const {
    const size_t count = result.size() / size, period = std::min(count, kPeriod);
    const bool allowed = rounds && op_ == ncclAvg && !whole();
    std::vector<double> right(period), error(period);
    for (size_t i = 0; i < period; ++i) {
      right[i] = this->right(i);
      if (allowed) error[i] = std::ldexp(magnitude(i) * (1 + 1.0 / ranks_), -bits());
    }
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i)
      wrong += !(std::fabs(decode(&result[i * size], type_) - right[i % kPeriod]) <= error[i % kPeriod]);
    return wrong;
  }

 private:
  // Bits of a whole number that the type holds exactly: the mantissa, or less than the integer has, since `double`
  // is what this file computes in and the check of an average divides.
  int bits() const {
    switch (type_) {
      case ncclFloat16: return 11;
      case ncclBfloat16: return 8;
      case ncclFloat32: return 24;
      case ncclInt32: return 30;
      case ncclInt64: return 50;
      default: return 53;
    }
  }

  bool whole() const { return type_ == ncclInt32 || type_ == ncclInt64; }

  double element(int rank, size_t i) const {
    const size_t turn = (i + static_cast<size_t>(rank)) % static_cast<size_t>(ranks_);
    const uint64_t random = scrambled((seed_ << 40) + i * 16384 + static_cast<uint64_t>(rank));
    return op_ == ncclProd ? factor(turn, random) : summand(turn, random);
  }

  // 8 factors at most, so that halves have room: two of them share the mantissa, the others are powers of two.
  double factor(size_t turn, uint64_t random) const {
    if (turn >= 8) return 1;
    const uint64_t most = (uint64_t{1} << (whole() ? (bits() - 6) / 2 : bits() / 2)) - 1;
    if (turn < 2) return static_cast<double>(1 + random % most) * (random >> 63 ? 1 : -1);
    return random % 2 ? 2 : whole() ? -1 : 0.5;
  }

  // The sum of all absolute values fits into the mantissa.
  double summand(size_t turn, uint64_t random) const {
    const uint64_t shared = op_ == ncclAvg ? static_cast<uint64_t>(ranks_) : 1;  // right() adds multiples of n
    const uint64_t room = std::min(uint64_t{1} << bits(), (uint64_t{1} << 53) / shared);
    if (turn >= room) return 0;
    const uint64_t most = std::max<uint64_t>(1, room / static_cast<uint64_t>(ranks_));
    const double value = static_cast<double>(random % (2 * most + 1)) - static_cast<double>(most);
    if (op_ != ncclAvg || whole()) return value;
    // A float is divided before it is summed, which is exact for a multiple of n, if the type has that multiple.
    const double multiple = value * ranks_;
    char kept[sizeof(double)];
    encode(kept, multiple, type_);
    return decode(kept, type_) == multiple ? multiple : 0;
  }

  // n times the sum of all absolute values of an average.
  double magnitude(size_t i) const {
    double total = 0;
    for (int rank = 0; rank < ranks_; ++rank) total += std::fabs(element(rank, i));
    return total;
  }

  double right(size_t i) const {
    double result = element(0, i);
    for (int rank = 1; rank < ranks_; ++rank) {
      const double x = element(rank, i);
      if (op_ == ncclProd) result *= x;
      else if (op_ == ncclMax) result = std::max(result, x);
      else if (op_ == ncclMin) result = std::min(result, x);
      else result += x;
    }
    if (op_ != ncclAvg) return result;
    return whole() ? std::trunc(result / ranks_) : result / ranks_;
  }

  int ranks_;
  ncclDataType_t type_;
  ncclRedOp_t op_;
  uint64_t seed_;
};

}  // namespace stragglar
