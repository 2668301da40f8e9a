// Test double of the two conversions of bfloat16 that are used: to nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 b) {
  const uint32_t wide = static_cast<uint32_t>(b.bits) << 16;
  float x;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  if (std::isnan(x)) return {0x7fff};
  uint32_t wide;
  std::memcpy(&wide, &x, sizeof wide);
  return {static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
}
