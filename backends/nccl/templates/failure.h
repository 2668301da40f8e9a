// Errors: every return code of CUDA and NCCL is looked at, and the message says what failed and where.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <stdexcept>
#include <string>

namespace stragglar {

// What went wrong, in one line. `code` is what a program should exit with: 1 failed, 2 wrong use, 4 no GPU.
struct Failure : std::runtime_error {
  explicit Failure(const std::string& what, int exit_code = 1) : std::runtime_error(what), code(exit_code) {}
  int code;
};

inline void check(cudaError_t result, const char* call, const std::string& where) {
  if (result != cudaSuccess) throw Failure(where + ": " + call + ": " + cudaGetErrorString(result));
}

inline void check(ncclResult_t result, const char* call, const std::string& where) {
  if (result != ncclSuccess) throw Failure(where + ": " + call + ": " + ncclGetErrorString(result));
}

}  // namespace stragglar
