// Elementwise kernels. They are bound by memory, so all that matters is to load 16 bytes at a time.
#include "kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#ifndef __CUDACC__
#include <chrono>
#endif

namespace stragglar {
namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kMostBlocks = 2048;
constexpr size_t kWide = 16;  // bytes of the longest load there is

// Arithmetic is done in a type of its own: halves in float, integers unsigned (their sums wrap).
template <class T>
struct Wide {
  using type = T;
  __device__ static T up(T x) { return x; }
  __device__ static T down(T x) { return x; }
};
template <>
struct Wide<__half> {
  using type = float;
  __device__ static float up(__half x) { return __half2float(x); }
  __device__ static __half down(float x) { return __float2half_rn(x); }
};
template <>
struct Wide<__nv_bfloat16> {
  using type = float;
  __device__ static float up(__nv_bfloat16 x) { return __bfloat162float(x); }
  __device__ static __nv_bfloat16 down(float x) { return __float2bfloat16_rn(x); }
};

template <class T>
struct Unsigned {
  using type = T;
};
template <>
struct Unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using type = uint64_t;
};

struct Sum {
  template <class T>
  __device__ static T join(T a, T b) {
    using U = typename Unsigned<T>::type;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Prod {
  template <class T>
  __device__ static T join(T a, T b) {
    using U = typename Unsigned<T>::type;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};
// A NaN on either side is the result, as in numpy: x != x is true for NaNs only.
struct Max {
  template <class T>
  __device__ static T join(T a, T b) {
    return (b > a || b != b) ? b : a;
  }
};
struct Min {
  template <class T>
  __device__ static T join(T a, T b) {
    return (b < a || b != b) ? b : a;
  }
};

template <class T, class Op>
struct Join {
  const T* a;
  const T* b;
  __device__ T operator()(size_t i) const { return of(a[i], b[i]); }
  __device__ static T of(T x, T y) { return Wide<T>::down(Op::join(Wide<T>::up(x), Wide<T>::up(y))); }
};

template <class T>
struct alignas(kWide) Pack {
  T at[kWide / sizeof(T)];
};

// Elements before the first 16-byte boundary and after the last one go one by one.
struct Split {
  size_t head, packs, count;
};

template <class T, class Op>
__global__ void reduce_kernel(T* out, const T* a, const T* b, Split split) {
  constexpr size_t per = kWide / sizeof(T);
  const size_t first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const auto* wide_a = reinterpret_cast<const Pack<T>*>(a + split.head);
  const auto* wide_b = reinterpret_cast<const Pack<T>*>(b + split.head);
  auto* wide_out = reinterpret_cast<Pack<T>*>(out + split.head);
  for (size_t i = first; i < split.packs; i += step) {
    const Pack<T> x = wide_a[i], y = wide_b[i];
    Pack<T> z;
#pragma unroll
    for (size_t j = 0; j < per; ++j) z.at[j] = Join<T, Op>::of(x.at[j], y.at[j]);
    wide_out[i] = z;
  }
  const size_t tail = split.head + split.packs * per;
  const Join<T, Op> join{a, b};
  for (size_t i = first; i < split.head; i += step) out[i] = join(i);
  for (size_t i = tail + first; i < split.count; i += step) out[i] = join(i);
}

// A true division: n values of n times x, each divided, add up to n x exactly.
template <class T>
__device__ T quotient(T x, int divisor) {
  return Wide<T>::down(Wide<T>::up(x) / static_cast<typename Wide<T>::type>(divisor));
}

template <class T>
__global__ void divide_kernel(T* out, const T* in, Split split, int divisor) {
  constexpr size_t per = kWide / sizeof(T);
  const size_t first = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  const auto* wide_in = reinterpret_cast<const Pack<T>*>(in + split.head);
  auto* wide_out = reinterpret_cast<Pack<T>*>(out + split.head);
  for (size_t i = first; i < split.packs; i += step) {
    const Pack<T> x = wide_in[i];
    Pack<T> z;
#pragma unroll
    for (size_t j = 0; j < per; ++j) z.at[j] = quotient(x.at[j], divisor);
    wide_out[i] = z;
  }
  for (size_t i = first; i < split.head; i += step) out[i] = quotient(in[i], divisor);
  for (size_t i = split.head + split.packs * per + first; i < split.count; i += step) out[i] = quotient(in[i], divisor);
}

__device__ uint64_t nanoseconds_now() {
#ifdef __CUDACC__
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#else  // compiled for a CPU: the test double
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
#endif
}

__global__ void spin_kernel(uint64_t nanoseconds) {
  const uint64_t start = nanoseconds_now();
  while (nanoseconds_now() - start < nanoseconds) {
  }
}

// cudaLaunchKernelEx, and no <<<>>>: it returns the error, and an ordinary compiler can read it.
template <class... Parameters, class... Arguments>
cudaError_t launch(size_t items, cudaStream_t stream, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  const size_t blocks = std::min((items + kThreads - 1) / kThreads, kMostBlocks);
  config.gridDim = dim3(static_cast<unsigned>(std::max<size_t>(blocks, 1)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

size_t misaligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kWide; }

template <class T>
Split split_of(const T* out, const T* a, const T* b, size_t count) {
  const size_t off = misaligned(out);
  if (misaligned(a) != off || misaligned(b) != off) return {count, 0, count};  // no common boundary
  const size_t head = std::min((kWide - off) % kWide / sizeof(T), count);
  return {head, (count - head) / (kWide / sizeof(T)), count};
}

// Enough threads for the longest of the three loops of a kernel.
size_t items_of(const Split& split) { return std::max({split.packs, split.head, kWide}); }

template <class T, class Op>
cudaError_t reduce_as(void* out, const void* a, const void* b, size_t count, cudaStream_t stream) {
  auto* to = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  const Split split = split_of(to, x, y, count);
  return launch(items_of(split), stream, reduce_kernel<T, Op>, to, x, y, split);
}

template <class T>
cudaError_t reduce_type(void* out, const void* a, const void* b, size_t count, ncclRedOp_t op, cudaStream_t stream) {
  switch (op) {
    case ncclSum: return reduce_as<T, Sum>(out, a, b, count, stream);
    case ncclProd: return reduce_as<T, Prod>(out, a, b, count, stream);
    case ncclMax: return reduce_as<T, Max>(out, a, b, count, stream);
    case ncclMin: return reduce_as<T, Min>(out, a, b, count, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <class T>
cudaError_t divide_type(void* out, const void* in, size_t count, int divisor, cudaStream_t stream) {
  auto* to = static_cast<T*>(out);
  const auto* from = static_cast<const T*>(in);
  const Split split = split_of(to, from, from, count);
  return launch(items_of(split), stream, divide_kernel<T>, to, from, split, divisor);
}

}  // namespace

size_t element_size(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat64:
    case ncclInt64: return 8;
    default: return 0;
  }
}

bool can_reduce(ncclRedOp_t op) { return op == ncclSum || op == ncclProd || op == ncclMax || op == ncclMin; }

cudaError_t launch_reduce(void* out, const void* a, const void* b, size_t count, ncclDataType_t type, ncclRedOp_t op,
                          cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  switch (type) {
    case ncclFloat16: return reduce_type<__half>(out, a, b, count, op, stream);
    case ncclBfloat16: return reduce_type<__nv_bfloat16>(out, a, b, count, op, stream);
    case ncclFloat32: return reduce_type<float>(out, a, b, count, op, stream);
    case ncclFloat64: return reduce_type<double>(out, a, b, count, op, stream);
    case ncclInt32: return reduce_type<int32_t>(out, a, b, count, op, stream);
    case ncclInt64: return reduce_type<int64_t>(out, a, b, count, op, stream);
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t launch_divide(void* out, const void* in, size_t count, ncclDataType_t type, int divisor,
                          cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  switch (type) {
    case ncclFloat16: return divide_type<__half>(out, in, count, divisor, stream);
    case ncclBfloat16: return divide_type<__nv_bfloat16>(out, in, count, divisor, stream);
    case ncclFloat32: return divide_type<float>(out, in, count, divisor, stream);
    case ncclFloat64: return divide_type<double>(out, in, count, divisor, stream);
    case ncclInt32: return divide_type<int32_t>(out, in, count, divisor, stream);
    case ncclInt64: return divide_type<int64_t>(out, in, count, divisor, stream);
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t launch_spin(uint64_t nanoseconds, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, spin_kernel, nanoseconds);
}

}  // namespace stragglar
