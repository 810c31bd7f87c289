#pragma once
/// A Vector of one lane, a GPU thread's own, with the words that the formulas in common/ are
/// written in, and the storage types. The arithmetic is that of the AVX2 and AVX-512 tables, bit
/// for bit: where they fuse it fuses, and nowhere else (nvcc: -fmad=false). A GPU's own conversions
/// round alike; only the bits of a NaN differ.

#include <cstdint>
#include <cstring>

#include <math.h>

#include "common/function.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

using Vector = float;
using Integers = std::int32_t;

DSTUNE_FUNCTION Vector splat(float value) {
  return value;
}
DSTUNE_FUNCTION Integers as_integers(Vector value) {
  Integers bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
DSTUNE_FUNCTION Vector as_vector(Integers bits) {
  Vector value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
DSTUNE_FUNCTION std::uint32_t bits_of(float value) {
  return static_cast<std::uint32_t>(as_integers(value));
}
DSTUNE_FUNCTION float float_of(std::uint32_t bits) {
  return as_vector(static_cast<Integers>(bits));
}

/// a·b + c, rounded once.
DSTUNE_FUNCTION Vector multiply_add(Vector a, Vector b, Vector c) {
  return fmaf(a, b, c);
}
DSTUNE_FUNCTION Vector square_root(Vector value) {
  return sqrtf(value);
}
DSTUNE_FUNCTION Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}
DSTUNE_FUNCTION Vector smaller(Vector a, Vector b) {
  return a < b ? a : b;
}

struct Bfloat16 {
  std::uint16_t bits;
};
/// IEEE 754 binary16.
struct Float16 {
  std::uint16_t bits;
};

DSTUNE_FUNCTION float widened(float value) {
  return value;
}
DSTUNE_FUNCTION float widened(Bfloat16 value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}
DSTUNE_FUNCTION float widened(Float16 value) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  // The exponent stands in a float's place, and 2^112 makes up for the different biases; denormals
  // come out right too. The largest exponent stands for infinity and NaN.
  const std::uint32_t wide = value.bits;
  const std::uint32_t magnitude = (wide & 0x7fffU) << 13;
  const std::uint32_t finite = bits_of(float_of(magnitude) * 0x1p112F);
  const bool special = (wide & 0x7c00U) == 0x7c00U;
  return float_of((special ? magnitude | 0x7f800000U : finite) | (wide & 0x8000U) << 16);
#endif
}

DSTUNE_FUNCTION void round_to(float& to, float value) {
  to = value;
}
/// To nearest, ties to even; a NaN stays one.
DSTUNE_FUNCTION void round_to(Bfloat16& to, float value) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
#else
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  to.bits = static_cast<std::uint16_t>(value == value ? rounded : quiet);
#endif
}
/// Likewise; too large becomes infinite.
DSTUNE_FUNCTION void round_to(Float16& to, float value) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
#else
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t rounded = 0;
  if (magnitude >= 0x47800000U) {
    rounded = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  } else if (magnitude >= 0x38800000U) {
    // The exponent's bias changes by 112; a carry of the rounding may lead to infinity.
    rounded = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  } else {
    // Below 2^-14 a half counts multiples of 2^-24, as a float does that lies between 0.5 and 1.
    rounded = bits_of(float_of(magnitude) + 0.5F) - 0x3f000000U;
  }
  to.bits = static_cast<std::uint16_t>(rounded | ((bits >> 16) & 0x8000U));
#endif
}

/// A word is two elements, the first in its low half.
DSTUNE_FUNCTION void widen_two(Bfloat16 /*type*/, std::uint32_t word, float& first, float& second) {
  first = float_of(word << 16);
  second = float_of(word & 0xffff0000U);
}
DSTUNE_FUNCTION void widen_two(Float16 /*type*/, std::uint32_t word, float& first, float& second) {
  first = widened(Float16{static_cast<std::uint16_t>(word)});
  second = widened(Float16{static_cast<std::uint16_t>(word >> 16)});
}
template <class T>
DSTUNE_FUNCTION std::uint32_t one_by_one(float first, float second) {
  T low;
  T high;
  round_to(low, first);
  round_to(high, second);
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}
DSTUNE_FUNCTION std::uint32_t two_rounded(Bfloat16 /*type*/, float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return one_by_one<Bfloat16>(first, second);
#endif
}
DSTUNE_FUNCTION std::uint32_t two_rounded(Float16 /*type*/, float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  return one_by_one<Float16>(first, second);
#endif
}

/// Rounded to half precision.
DSTUNE_FUNCTION float to_half(float value) {
  Float16 rounded;
  round_to(rounded, value);
  return widened(rounded);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
