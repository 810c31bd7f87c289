#pragma once
/// The formulas of single elements, written once for every backend: a Vector is what the backend's
/// isa/vector.hpp says, a processor's register of floats or a GPU thread's single one.

#include <cmath>
#include <cstdint>

#include "common/function.hpp"
#include "dstune/kernels/kernels.hpp"
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

/// tanh x, near 0 by the polynomial of Cephes (tanhf.c): there the quotient would cancel.
DSTUNE_FUNCTION Vector hyperbolic_tangent(Vector x) {
  const Vector size = larger(x, -x);
  const Vector square = x * x;
  Vector series = splat(-5.70498872745e-3F);
  series = multiply_add(series, square, splat(2.06390887954e-2F));
  series = multiply_add(series, square, splat(-5.37397155531e-2F));
  series = multiply_add(series, square, splat(1.33314442036e-1F));
  series = multiply_add(series, square, splat(-3.33332819422e-1F));
  const Vector near_zero = multiply_add(series * square, x, x);
  const Vector far = 1.0F - 2.0F / (exponential(2.0F * size) + 1.0F);
  const Vector beyond = x < 0.0F ? -far : far;
  return size < 0.625F ? near_zero : beyond;
}

/// x becomes cap·tanh(x / cap), which is between −cap and cap.
struct Softcap {
  float cap, inverse;
  explicit DSTUNE_FUNCTION Softcap(float largest) : cap(largest), inverse(1.0F / largest) {}

  DSTUNE_FUNCTION Vector value(Vector x) const { return cap * hyperbolic_tangent(x * inverse); }
  /// From a value. Below the smallest, as of what is masked, it is 0.
  DSTUNE_FUNCTION Vector slope(Vector value) const {
    const Vector part = larger(value, splat(-cap)) * inverse;
    return 1.0F - part * part;
  }
};

/// A LogitsForm as the kernels compute it.
template <bool is_capped>
struct FormedLogits {
  float multiplier;
  Softcap softcap;

  DSTUNE_FUNCTION Vector value(Vector logit) const {
    const Vector scaled = logit * multiplier;
    if constexpr (is_capped) return softcap.value(scaled);
    return scaled;
  }
  DSTUNE_FUNCTION Vector slope(Vector value) const {
    if constexpr (is_capped) return multiplier * softcap.slope(value);
    return splat(multiplier);
  }
};

/// The arithmetic of activations. A backend may have a less exact one for 16-bit storage.
struct Exact {
  DSTUNE_FUNCTION static Vector power(Vector x) { return exponential(x); }
  DSTUNE_FUNCTION static Vector inverse(Vector x) { return 1.0F / x; }
};

/// 1 / (1 + e^−x).
template <class Arithmetic>
DSTUNE_FUNCTION Vector logistic(Vector x) {
  return Arithmetic::inverse(1.0F + Arithmetic::power(-x));
}

// Activations, their slopes, and SwiGLU.

template <class Arithmetic>
struct GeluTanh {
  // 0.5·(1 + tanh(u)) = logistic(2u), which loses nothing to cancellation; these are of 2u.
  static constexpr float linear = 1.5957691216057308F;  // 2·sqrt(2/π)
  static constexpr float cubic = 1.5957691216057308F * 0.044715F;

  DSTUNE_FUNCTION static Vector value(Vector x) {
    return x * logistic<Arithmetic>(x * multiply_add(splat(cubic), x * x, splat(linear)));
  }
  DSTUNE_FUNCTION static Vector slope(Vector x) {
    // Beyond ±16 the slope is 0 or 1 to the last bit, and powers of x could overflow.
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    const Vector square = bounded * bounded;
    const Vector gate =
        logistic<Arithmetic>(bounded * multiply_add(splat(cubic), square, splat(linear)));
    const Vector inner = multiply_add(splat(3.0F * cubic), square, splat(linear));
    return multiply_add(bounded * inner * (1.0F - gate), gate, gate);
  }
};

template <class Arithmetic>
struct Gelu {
  /// The normal distribution Φ(x), absolute error below 1e-7: Abramowitz and Stegun (1964), 7.1.26,
  /// of x/√2. The tail of the smaller side is a product, which loses nothing to cancellation.
  DSTUNE_FUNCTION static Vector distribution(Vector x, Vector gaussian) {
    const Vector size = larger(x, -x);
    const Vector t =
        Arithmetic::inverse(multiply_add(splat(0.3275911F * 0.70710678F), size, splat(1.0F)));
    Vector series = splat(1.061405429F);
    series = multiply_add(series, t, splat(-1.453152027F));
    series = multiply_add(series, t, splat(1.421413741F));
    series = multiply_add(series, t, splat(-0.284496736F));
    series = multiply_add(series, t, splat(0.254829592F));
    const Vector tail = 0.5F * series * t * gaussian;
    return x < 0.0F ? tail : 1.0F - tail;
  }
  /// e^(−x²/2)
  DSTUNE_FUNCTION static Vector gaussian_of(Vector x) {
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    return Arithmetic::power(-0.5F * bounded * bounded);
  }
  DSTUNE_FUNCTION static Vector value(Vector x) { return x * distribution(x, gaussian_of(x)); }
  DSTUNE_FUNCTION static Vector slope(Vector x) {
    constexpr float density = 0.3989422804F;  // 1/sqrt(2π)
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    const Vector gaussian = gaussian_of(x);
    return multiply_add(bounded * density, gaussian, distribution(x, gaussian));
  }
};

struct Relu {
  // So that NaN stays NaN.
  DSTUNE_FUNCTION static Vector value(Vector x) { return x < 0.0F ? Vector{} : x; }
  DSTUNE_FUNCTION static Vector slope(Vector x) { return x > 0.0F ? splat(1.0F) : Vector{}; }
};

template <class Arithmetic>
struct Silu {
  DSTUNE_FUNCTION static Vector value(Vector x) { return x * logistic<Arithmetic>(x); }
  DSTUNE_FUNCTION static Vector slope(Vector x) {
    // Beyond ±88 the slope is 0 or 1 to the last bit, and infinities would meet zeros.
    const Vector bounded = larger(smaller(x, splat(88.0F)), splat(-88.0F));
    const Vector gate = logistic<Arithmetic>(bounded);
    return multiply_add(bounded * gate, 1.0F - gate, gate);
  }
};

/// body(GeluTanh<Arithmetic>{}), or what else the activation is.
template <class Arithmetic, class Body>
DSTUNE_FUNCTION auto with_function(Activation activation, Body body) {
  switch (activation) {
    case Activation::gelu_tanh:
      return body(GeluTanh<Arithmetic>{});
    case Activation::gelu:
      return body(Gelu<Arithmetic>{});
    case Activation::relu:
      return body(Relu{});
    default:
      return body(Silu<Arithmetic>{});
  }
}

template <class Arithmetic>
DSTUNE_FUNCTION Vector swiglu(Vector gate, Vector up) {
  return gate * logistic<Arithmetic>(gate) * up;
}

struct SwigluSlopes {
  Vector gate, up;
};

template <class Arithmetic>
DSTUNE_FUNCTION SwigluSlopes swiglu_slopes(Vector gate, Vector up, Vector d_out) {
  const Vector opening = logistic<Arithmetic>(gate);
  const Vector silu = gate * opening;
  // silu' = s + silu·(1 − s)
  return {d_out * up * multiply_add(silu, 1.0F - opening, opening), d_out * silu};
}

/// The product of an activation, silu or gelu_tanh, with what it gates.
template <Activation activation, class Arithmetic>
DSTUNE_FUNCTION Vector gated(Vector gate, Vector up) {
  if constexpr (activation == Activation::silu) return swiglu<Arithmetic>(gate, up);
  return GeluTanh<Arithmetic>::value(gate) * up;
}

template <Activation activation, class Arithmetic>
DSTUNE_FUNCTION SwigluSlopes gated_slopes(Vector gate, Vector up, Vector d_out) {
  if constexpr (activation == Activation::silu) return swiglu_slopes<Arithmetic>(gate, up, d_out);
  return {d_out * up * GeluTanh<Arithmetic>::slope(gate),
          d_out * GeluTanh<Arithmetic>::value(gate)};
}

/// The heads of q, or of k, in rows of qkv, for a norm of each or one that spans them. The norms of
/// all rows are numbered.
struct Heads {
  Heads(const AttentionShape& shape, bool spans_heads, bool is_query)
      : rows(shape.batch * shape.sequence),
        of_row(spans_heads ? 1
               : is_query  ? shape.heads
                           : shape.kv_heads),
        size(shape.head_size * (!spans_heads ? 1
                                : is_query   ? shape.heads
                                             : shape.kv_heads)),
        row_width((shape.heads + 2 * shape.kv_heads) * shape.head_size),
        raw_width((shape.heads + shape.kv_heads) * shape.head_size),
        rstd_width(spans_heads ? 2 : shape.heads + shape.kv_heads),
        first(is_query ? 0 : shape.heads * shape.head_size),
        first_rstd(is_query      ? 0
                   : spans_heads ? 1
                                 : shape.heads) {}

  // The places of a norm's first element in qkv and in raw, and of its rstd.
  DSTUNE_FUNCTION std::int64_t begin(std::int64_t number) const {
    return number / of_row * row_width + first + number % of_row * size;
  }
  DSTUNE_FUNCTION std::int64_t raw_at(std::int64_t number) const {
    return number / of_row * raw_width + first + number % of_row * size;
  }
  DSTUNE_FUNCTION std::int64_t rstd_at(std::int64_t number) const {
    return number / of_row * rstd_width + first_rstd + number % of_row;
  }

  std::int64_t rows, of_row, size, row_width, raw_width, rstd_width, first, first_rstd;
};

/// A pair of elements that is turned by an angle.
struct Pair {
  Vector low, high;
};

DSTUNE_FUNCTION Pair turned(Pair pair, Vector cosine, Vector sine) {
  return {multiply_add(pair.low, cosine, -(pair.high * sine)),
          multiply_add(pair.high, cosine, pair.low * sine)};
}

// Numbers of 8 or 4 bits with a scale for each run of them; quantize() and dequantize() of
// kernels.hpp have the formulas.

/// The factor on a run's numbers. `magnitude`: of the largest of them.
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

/// The arithmetic of clipping by the norm of all gradients.
struct ClipFactor {
  const double* squares;
  std::int64_t count;
  double clip, loss_scale;
  double* norm;
  float* factor;

  DSTUNE_FUNCTION void find() const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += squares[i];
    *norm = sqrt(sum) / loss_scale;
    const double excess = (*norm + 1e-6) / clip;
    // NaN becomes 1, too.
    const double divisor = excess > 1.0 ? excess : 1.0;
    *factor = static_cast<float>(1.0 / (divisor * loss_scale));
  }
};

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
