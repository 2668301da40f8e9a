// Test double of the two conversions of half precision that are used: to nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>

struct __half {
  uint16_t bits;
};

inline float __half2float(__half h) {
  const int exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  const float sign = h.bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

inline __half __float2half_rn(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const float size = std::fabs(x);
  if (size == 0) return {sign};
  if (std::isnan(x)) return {0x7fff};
  if (size >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};
  int exponent = 0;
  (void)std::frexp(size, &exponent);
  const int unit = exponent < -13 ? -24 : exponent - 11;  // log2 of the last place
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -unit)));
  // Carries from the fraction into the exponent are right by the format's design.
  const uint32_t bits = unit == -24 ? steps : steps - 1024 + (static_cast<uint32_t>(unit + 25) << 10);
  return {static_cast<uint16_t>(sign | bits)};
}
