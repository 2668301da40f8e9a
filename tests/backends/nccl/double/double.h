// What the two halves of the double share: how it complains, where memory is, how work gets into a stream.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>

constexpr int kCaught = 86;  // exit code when the double finds fault with the program

// Ends the process with `double: ...` on standard error.
[[noreturn]] void double_fault(const std::string& what);

// Faults unless all of the bytes lie in one allocation.
void double_check_range(const void* pointer, size_t bytes, const std::string& who);

void double_enqueue(cudaStream_t stream, std::function<void()> work);

// Milliseconds without progress after which waiting is a stall: DOUBLE_STALL_MS.
int double_stall_ms();
