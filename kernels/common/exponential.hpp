#pragma once
/// exp and what follows from it, written once for every backend: a Vector is what the backend's
/// isa/vector.hpp says, a processor's register of floats or a GPU thread's single one.

#include "common/function.hpp"
#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// e^x within 2 units in the last place; 0 below the smallest normal number's logarithm (−87.33),
/// and constant above 88.37 instead of infinite. NaN stays NaN.
DSTUNE_FUNCTION Vector exponential(Vector x) {
  constexpr float lowest = -87.33F;
  constexpr float highest = 88.37F;
  constexpr float log2_of_e = 1.44269504F;
  // ln 2 in two parts, the first so short that its products with whole numbers are exact.
  constexpr float ln2_high = 0.693359375F;
  constexpr float ln2_low = -2.12194440e-4F;
  // Adding 1.5·2^23 rounds to a whole number, which then stands in the low bits.
  const Vector rounder = splat(12582912.0F);

  Vector bounded = x < lowest ? splat(lowest) : x;
  bounded = bounded > highest ? splat(highest) : bounded;
  const Vector shifted = multiply_add(bounded, splat(log2_of_e), rounder);
  const Vector power = shifted - rounder;
  Vector rest = multiply_add(power, splat(-ln2_high), bounded);
  rest = multiply_add(power, splat(-ln2_low), rest);

  // Taylor's series: |rest| ≤ ln 2 / 2, so the first term left out is below 5.3e-9.
  Vector series = splat(1.0F / 5040.0F);
  series = multiply_add(series, rest, splat(1.0F / 720.0F));
  series = multiply_add(series, rest, splat(1.0F / 120.0F));
  series = multiply_add(series, rest, splat(1.0F / 24.0F));
  series = multiply_add(series, rest, splat(1.0F / 6.0F));
  series = multiply_add(series, rest, splat(0.5F));
  series = multiply_add(series, rest * rest, rest + 1.0F);

  const Integers exponent = as_integers(shifted) - as_integers(rounder);
  const Vector factor = as_vector((exponent + 127) << 23);
  return x < lowest ? Vector{} : series * factor;
}

/// 1 / (1 + e^−x).
DSTUNE_FUNCTION Vector logistic(Vector x) {
  return 1.0F / (1.0F + exponential(-x));
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
