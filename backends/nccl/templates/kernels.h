// The work on the device that is not NCCL's. Everything else of this project is plain C++.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace stragglar {

// Bytes of one element; 0: a type that this project does not reduce.
size_t element_size(ncclDataType_t type);

// Whether launch_reduce knows this reduction: ncclSum, ncclProd, ncclMax, ncclMin.
bool can_reduce(ncclRedOp_t op);

// out[i] = a[i] op b[i]. `out` may be `a` or `b`. For two ranks that swap, give both the operand of the lower
// rank as `a`: then both get the same bits, also for NaNs and for max(+0, -0).
cudaError_t launch_reduce(void* out, const void* a, const void* b, size_t count, ncclDataType_t type, ncclRedOp_t op,
                          cudaStream_t stream);

// out[i] = in[i] / divisor, integers towards zero. `out` may be `in`.
cudaError_t launch_divide(void* out, const void* in, size_t count, ncclDataType_t type, int divisor,
                          cudaStream_t stream);

// Keeps the stream busy: what comes after it in the stream starts that much later.
cudaError_t launch_spin(uint64_t nanoseconds, cudaStream_t stream);

}  // namespace stragglar
