// The kernels as a library for ctypes, called and waited for: for tests against numpy.
#include "kernels.h"

namespace {

template <class Launch>
int on_a_stream(const Launch& launch) {
  cudaStream_t stream;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return -1;
  const int code = launch(stream);
  (void)cudaStreamSynchronize(stream);
  (void)cudaStreamDestroy(stream);
  return code;
}

}  // namespace

extern "C" int double_reduce(void* out, const void* a, const void* b, size_t count, int type, int op) {
  return on_a_stream([&](cudaStream_t stream) {
    return stragglar::launch_reduce(out, a, b, count, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op),
                                    stream);
  });
}

extern "C" int double_divide(void* out, const void* in, size_t count, int type, int divisor) {
  return on_a_stream([&](cudaStream_t stream) {
    return stragglar::launch_divide(out, in, count, static_cast<ncclDataType_t>(type), divisor, stream);
  });
}
