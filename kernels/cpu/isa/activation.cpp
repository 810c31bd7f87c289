// Activations and SwiGLU.
#include "isa/exponential.hpp"
#include "isa/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct GeluTanh {
  // 0.5·(1 + tanh(u)) = logistic(2u), which loses nothing to cancellation; these are of 2u.
  static constexpr float linear = 1.5957691216057308F;  // 2·sqrt(2/π)
  static constexpr float cubic = 1.5957691216057308F * 0.044715F;

  static Vector value(Vector x) {
    return x * logistic(x * multiply_add(splat(cubic), x * x, splat(linear)));
  }
  static Vector slope(Vector x) {
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
  static Vector distribution(Vector x, Vector bell) {
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
  static Vector bell_of(Vector x) {
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    return exponential(-0.5F * bounded * bounded);
  }
  static Vector value(Vector x) { return x * distribution(x, bell_of(x)); }
  static Vector slope(Vector x) {
    constexpr float density = 0.3989422804F;  // 1/sqrt(2π)
    const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
    const Vector bell = bell_of(x);
    return multiply_add(bounded * density, bell, distribution(x, bell));
  }
};

struct Relu {
  // So that NaN stays NaN.
  static Vector value(Vector x) { return x < 0.0F ? Vector{} : x; }
  static Vector slope(Vector x) { return x > 0.0F ? splat(1.0F) : Vector{}; }
};

struct Silu {
  static Vector value(Vector x) { return x * logistic(x); }
  static Vector slope(Vector x) {
    // Beyond ±88 the slope is 0 or 1 to the last bit, and infinities would meet zeros.
    const Vector bounded = larger(smaller(x, splat(88.0F)), splat(-88.0F));
    const Vector gate = logistic(bounded);
    return multiply_add(bounded * gate, 1.0F - gate, gate);
  }
};

/// body(Function{})
template <class Body>
void with_function(Activation activation, Body body) {
  switch (activation) {
    case Activation::gelu_tanh:
      return body(GeluTanh{});
    case Activation::gelu:
      return body(Gelu{});
    case Activation::relu:
      return body(Relu{});
    case Activation::silu:
      return body(Silu{});
  }
}

}  // namespace

void activation_forward(DType type, Activation activation, void* out, const void* x,
                        std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    T* to = static_cast<T*>(out);
    const T* from = static_cast<const T*>(x);
    with_function(activation, [&](auto function) {
      for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
        for_vectors(begin, end, [&](std::int64_t i, auto extent) {
          store(to + i, function.value(load(from + i, extent)), extent);
        });
      });
    });
  });
}

void activation_backward(DType type, Activation activation, void* d_x, const void* d_out,
                         const void* x, std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    T* to = static_cast<T*>(d_x);
    const T* slope_out = static_cast<const T*>(d_out);
    const T* from = static_cast<const T*>(x);
    with_function(activation, [&](auto function) {
      for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
        for_vectors(begin, end, [&](std::int64_t i, auto extent) {
          store(to + i, load(slope_out + i, extent) * function.slope(load(from + i, extent)),
                extent);
        });
      });
    });
  });
}

void swiglu_forward(DType type, void* out, const void* gate_up, std::int64_t rows,
                    std::int64_t width) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_items(rows, width, [&](std::int64_t row) {
      T* to = static_cast<T*>(out) + row * width;
      const T* gate = static_cast<const T*>(gate_up) + row * 2 * width;
      const T* up = gate + width;
      for_vectors(0, width, [&](std::int64_t i, auto extent) {
        const Vector opened = load(gate + i, extent);
        store(to + i, opened * logistic(opened) * load(up + i, extent), extent);
      });
    });
  });
}

void swiglu_backward(DType type, void* d_gate_up, const void* d_out, const void* gate_up,
                     std::int64_t rows, std::int64_t width) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_items(rows, width, [&](std::int64_t row) {
      T* d_gate = static_cast<T*>(d_gate_up) + row * 2 * width;
      const T* d_row = static_cast<const T*>(d_out) + row * width;
      const T* gate_row = static_cast<const T*>(gate_up) + row * 2 * width;
      for_vectors(0, width, [&](std::int64_t i, auto extent) {
        const Vector gate = load(gate_row + i, extent);
        const Vector up = load(gate_row + width + i, extent);
        const Vector d = load(d_row + i, extent);
        const Vector opening = logistic(gate);
        const Vector silu = gate * opening;
        // silu' = s + silu·(1 − s)
        store(d_gate + i, d * up * multiply_add(silu, 1.0F - opening, opening), extent);
        store(d_gate + width + i, d * silu, extent);
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
