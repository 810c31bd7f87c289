// Activations, and their products with what they gate.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
void activation_forward(DType type, Activation activation, void* out, const void* x,
                        std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    with_function<Exact>(activation, [&](auto function) {
      const auto value = [&](Vector of) { return function.value(of); };
      for_elements(count, static_cast<T*>(out), value, static_cast<const T*>(x));
    });
  });
}

void activation_backward(DType type, Activation activation, void* d_x, const void* d_out,
                         const void* x, std::int64_t count) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    with_function<Exact>(activation, [&](auto function) {
      const auto product = [&](Vector d, Vector of) { return d * function.slope(of); };
      for_elements(count, static_cast<T*>(d_x), product, static_cast<const T*>(d_out),
                   static_cast<const T*>(x));
    });
  });
}

void gated_forward(DType type, Activation activation, void* out, const void* gate_up,
                   std::int64_t rows, std::int64_t width) {
  with_gate(activation, [&](auto gating) {
    with_type(type, [&](auto tag) {
      using T = decltype(tag);
      for_items(rows, width, [&](std::int64_t row) {
        T* to = static_cast<T*>(out) + row * width;
        const T* gate = static_cast<const T*>(gate_up) + row * 2 * width;
        const T* up = gate + width;
        for_vectors(0, width, [&](std::int64_t i, auto extent) {
          store(to + i, gated<gating, Exact>(load(gate + i, extent), load(up + i, extent)), extent);
        });
      });
    });
  });
}

void gated_backward(DType type, Activation activation, void* d_gate_up, const void* d_out,
                    const void* gate_up, std::int64_t rows, std::int64_t width) {
  with_gate(activation, [&](auto gating) {
    with_type(type, [&](auto tag) {
      using T = decltype(tag);
      for_items(rows, width, [&](std::int64_t row) {
        T* d_gate = static_cast<T*>(d_gate_up) + row * 2 * width;
        const T* d_row = static_cast<const T*>(d_out) + row * width;
        const T* gate_row = static_cast<const T*>(gate_up) + row * 2 * width;
        for_vectors(0, width, [&](std::int64_t i, auto extent) {
          const SwigluSlopes slopes = gated_slopes<gating, Exact>(
              load(gate_row + i, extent), load(gate_row + width + i, extent),
              load(d_row + i, extent));
          store(d_gate + i, slopes.gate, extent);
          store(d_gate + width + i, slopes.up, extent);
        });
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
