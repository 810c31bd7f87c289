#pragma once
/// Activations, their slopes, and SwiGLU, for a Vector of any backend.

#include "common/exponential.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct GeluTanh {
  // 0.5·(1 + tanh(u)) = logistic(2u), which loses nothing to cancellation; these are of 2u.
  static constexpr float linear = 1.5957691216057308F;  // 2·sqrt(2/π)
  static constexpr float cubic = 1.5957691216057308F * 0.044715F;

  DSTUNE_FUNCTION static Vector value(Vector x) {
    return x * logistic(x * multiply_add(splat(cubic), x * x, splat(linear)));
  }
  DSTUNE_FUNCTION static Vector slope(Vector x) {
    // Beyond ±16 the slope is 0 or 1 to the last bit, and powers of x could overflow.
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    const Vector square = bounded * bounded;
    const Vector gate = logistic(bounded * multiply_add(splat(cubic), square, splat(linear)));
    const Vector inner = multiply_add(splat(3.0F * cubic), square, splat(linear));
    return multiply_add(bounded * inner * (1.0F - gate), gate, gate);
  }
};

struct Gelu {
  /// The normal distribution Φ(x), absolute error below 1e-7: Abramowitz and Stegun (1964), 7.1.26,
  /// of x/√2. The tail of the smaller side is a product, which loses nothing to cancellation.
  DSTUNE_FUNCTION static Vector distribution(Vector x, Vector bell) {
    const Vector size = larger(x, -x);
    const Vector t = 1.0F / multiply_add(splat(0.3275911F * 0.70710678F), size, splat(1.0F));
    Vector series = splat(1.061405429F);
    series = multiply_add(series, t, splat(-1.453152027F));
    series = multiply_add(series, t, splat(1.421413741F));
    series = multiply_add(series, t, splat(-0.284496736F));
    series = multiply_add(series, t, splat(0.254829592F));
    const Vector tail = 0.5F * series * t * bell;
    return x < 0.0F ? tail : 1.0F - tail;
  }
  /// e^(−x²/2)
  DSTUNE_FUNCTION static Vector bell_of(Vector x) {
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    return exponential(-0.5F * bounded * bounded);
  }
  DSTUNE_FUNCTION static Vector value(Vector x) { return x * distribution(x, bell_of(x)); }
  DSTUNE_FUNCTION static Vector slope(Vector x) {
    constexpr float density = 0.3989422804F;  // 1/sqrt(2π)
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    const Vector bell = bell_of(x);
    return multiply_add(bounded * density, bell, distribution(x, bell));
  }
};

struct Relu {
  // So that NaN stays NaN.
  DSTUNE_FUNCTION static Vector value(Vector x) { return x < 0.0F ? Vector{} : x; }
  DSTUNE_FUNCTION static Vector slope(Vector x) { return x > 0.0F ? splat(1.0F) : Vector{}; }
};

struct Silu {
  DSTUNE_FUNCTION static Vector value(Vector x) { return x * logistic(x); }
  DSTUNE_FUNCTION static Vector slope(Vector x) {
    // Beyond ±88 the slope is 0 or 1 to the last bit, and infinities would meet zeros.
    const Vector bounded = larger(smaller(x, splat(88.0F)), splat(-88.0F));
    const Vector gate = logistic(bounded);
    return multiply_add(bounded * gate, 1.0F - gate, gate);
  }
};

DSTUNE_FUNCTION Vector swiglu(Vector gate, Vector up) {
  return gate * logistic(gate) * up;
}

struct SwigluSlopes {
  Vector gate, up;
};

DSTUNE_FUNCTION SwigluSlopes swiglu_slopes(Vector gate, Vector up, Vector d_out) {
  const Vector opening = logistic(gate);
  const Vector silu = gate * opening;
  // silu' = s + silu·(1 − s)
  return {d_out * up * multiply_add(silu, 1.0F - opening, opening), d_out * silu};
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
