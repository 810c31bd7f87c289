#pragma once
/// Numbers of 8 or 4 bits with a scale for each run of them, for a Vector of any backend;
/// quantize() and dequantize() of kernels.hpp have the formulas.

#include "common/function.hpp"
#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// What a run's numbers are multiplied by. `magnitude`: of the largest of them.
DSTUNE_FUNCTION float factor_of_run(float magnitude, int bits) {
  return magnitude == 0 ? 1.0F : static_cast<float>(1 << bits) / (2 * magnitude);
}

/// Codes, still floats. A NaN becomes some code: the scale tells.
DSTUNE_FUNCTION Vector codes_of(Vector x, float factor, int bits) {
  const float half = static_cast<float>(1 << bits) / 2;
  const Vector bounded = larger(smaller(to_half(x) * factor, splat(half - 1)), splat(-half));
  // Rounds to a whole number, ties to even, as long as magnitudes are below 2^22.
  const Vector rounder = splat(0x1.8p23F);
  return (bounded + rounder) - rounder;
}

DSTUNE_FUNCTION std::uint8_t byte_of(int low_code, int high_code) {
  return static_cast<std::uint8_t>((low_code & 15) | (high_code & 15) << 4);
}
DSTUNE_FUNCTION std::int8_t low_code(int byte) {
  return static_cast<std::int8_t>((byte & 15) - ((byte & 8) << 1));
}
DSTUNE_FUNCTION std::int8_t high_code(int byte) {
  return static_cast<std::int8_t>((byte >> 4) - ((byte & 128) >> 3));
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
