// GELU (tanh form) and SwiGLU.
#include "isa/exponential.hpp"
#include "isa/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

// 0.5·(1 + tanh(u)) = logistic(2u), which loses nothing to cancellation; these are of 2u.
constexpr float linear = 1.5957691216057308F;  // 2·sqrt(2/π)
constexpr float cubic = 1.5957691216057308F * 0.044715F;

inline Vector gelu(Vector x) {
  return x * logistic(x * multiply_add(splat(cubic), x * x, splat(linear)));
}

inline Vector gelu_slope(Vector x) {
  // Beyond ±16 the slope is 0 or 1 to the last bit, and powers of x could overflow.
  const Vector bounded = larger(smaller(x, splat(16.0F)), splat(-16.0F));
  const Vector square = bounded * bounded;
  const Vector gate = logistic(bounded * multiply_add(splat(cubic), square, splat(linear)));
  const Vector inner = multiply_add(splat(3.0F * cubic), square, splat(linear));
  return multiply_add(bounded * inner * (1.0F - gate), gate, gate);
}

}  // namespace

void gelu_forward(DType type, void* out, const void* x, std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    T* to = static_cast<T*>(out);
    const T* from = static_cast<const T*>(x);
    for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
      for_vectors(begin, end, [&](std::int64_t i, auto extent) {
        store(to + i, gelu(load(from + i, extent)), extent);
      });
    });
  });
}

void gelu_backward(DType type, void* d_x, const void* d_out, const void* x, std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    T* to = static_cast<T*>(d_x);
    const T* slope_out = static_cast<const T*>(d_out);
    const T* from = static_cast<const T*>(x);
    for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
      for_vectors(begin, end, [&](std::int64_t i, auto extent) {
        store(to + i, load(slope_out + i, extent) * gelu_slope(load(from + i, extent)), extent);
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
