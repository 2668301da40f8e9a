// Test data whose right result is known exactly: small integers, or powers of two for products, so that no
// order of reducing them rounds. One wrong bit is then a wrong element.
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

inline uint32_t scrambled(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
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
  size_t wrong(const std::vector<char>& result, size_t size) const {
    const size_t count = result.size() / size;
    std::vector<double> right;
    for (size_t i = 0; i < std::min(count, kPeriod); ++i) right.push_back(this->right(i));
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += !(decode(&result[i * size], type_) == right[i % kPeriod]);
    return wrong;
  }

 private:
  // bf16 has 8 bits: the sum of all absolute values stays within 256.
  double element(int rank, size_t i) const {
    const size_t turn = (i + static_cast<size_t>(rank)) % static_cast<size_t>(ranks_);
    const uint32_t random = scrambled((seed_ << 40) + i * 16384 + static_cast<uint64_t>(rank));
    if (op_ == ncclProd) {  // 8 factors at most, so that halves have room
      if (turn >= 8) return 1;
      return type_ == ncclInt32 || type_ == ncclInt64 ? (random % 2 ? 2 : -1) : (random % 2 ? 2 : 0.5);
    }
    if (turn >= 256) return 0;
    const int most = std::max(1, 256 / ranks_);
    const int value = static_cast<int>(random % static_cast<uint32_t>(2 * most + 1)) - most;
    if (op_ != ncclAvg) return value;
    return ranks_ * (value > 0 ? 1 : value < 0 ? -1 : 0);  // an average of multiples of n is whole
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
    return op_ == ncclAvg ? result / ranks_ : result;
  }

  int ranks_;
  ncclDataType_t type_;
  ncclRedOp_t op_;
  uint64_t seed_;
};

}  // namespace stragglar
