// Activations, and their products with what they gate.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"
#include "isa/quick.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct ActivationForward {
  Activation activation;
  Output out;
  Input x;

  DSTUNE_DEVICE DType type() const { return x.type; }
  DSTUNE_DEVICE void assume(DType all) { out.type = x.type = all; }

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> values = x.load<N>(i);
    with_arithmetic(x.type, [&]<class Arithmetic>(Arithmetic) {
      for (int k = 0; k < N; ++k) {
        values.of[k] = with_function<Arithmetic>(
            activation, [&](auto function) { return function.value(values.of[k]); });
      }
    });
    out.store(i, values);
  }
};

struct ActivationBackward {
  Activation activation;
  Output d_x;
  Input d_out, x;

  DSTUNE_DEVICE DType type() const { return x.type; }
  DSTUNE_DEVICE void assume(DType all) { d_x.type = d_out.type = x.type = all; }

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    const Values<N> from = x.load<N>(i);
    Values<N> d = d_out.load<N>(i);
    with_arithmetic(x.type, [&]<class Arithmetic>(Arithmetic) {
      for (int k = 0; k < N; ++k) {
        d.of[k] *= with_function<Arithmetic>(
            activation, [&](auto function) { return function.slope(from.of[k]); });
      }
    });
    d_x.store(i, d);
  }
};

template <Activation activation>
struct GatedForward {
  Output out;
  Input gate_up;
  std::int64_t width;

  DSTUNE_DEVICE DType type() const { return gate_up.type; }
  DSTUNE_DEVICE void assume(DType all) { out.type = gate_up.type = all; }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    for_row<N>(block, width, [&](std::int64_t i) {
      Values<N> gate = gate_up.load<N>(2 * row * width + i);
      const Values<N> up = gate_up.load<N>(2 * row * width + width + i);
      with_arithmetic(gate_up.type, [&]<class Arithmetic>(Arithmetic) {
        for (int k = 0; k < N; ++k)
          gate.of[k] = gated<activation, Arithmetic>(gate.of[k], up.of[k]);
      });
      out.store(row * width + i, gate);
    });
  }
};

template <Activation activation>
struct GatedBackward {
  Output d_gate_up;
  Input d_out, gate_up;
  std::int64_t width;

  DSTUNE_DEVICE DType type() const { return gate_up.type; }
  DSTUNE_DEVICE void assume(DType all) { d_gate_up.type = d_out.type = gate_up.type = all; }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    for_row<N>(block, width, [&](std::int64_t i) {
      const std::int64_t at = 2 * row * width + i;
      Values<N> gate = gate_up.load<N>(at);
      Values<N> up = gate_up.load<N>(at + width);
      const Values<N> d = d_out.load<N>(row * width + i);
      with_arithmetic(gate_up.type, [&]<class Arithmetic>(Arithmetic) {
        for (int k = 0; k < N; ++k) {
          const SwigluSlopes slopes =
              gated_slopes<activation, Arithmetic>(gate.of[k], up.of[k], d.of[k]);
          gate.of[k] = slopes.gate;
          up.of[k] = slopes.up;
        }
      });
      d_gate_up.store(at, gate);
      d_gate_up.store(at + width, up);
    });
  }
};

}  // namespace

void activation_forward(DType type, Activation activation, void* out, const void* x,
                        std::int64_t count) {
  for_elements(count, ActivationForward{activation, {out, type}, {x, type}}, are_packed(out, x));
}

void activation_backward(DType type, Activation activation, void* d_x, const void* d_out,
                         const void* x, std::int64_t count) {
  for_elements(count, ActivationBackward{activation, {d_x, type}, {d_out, type}, {x, type}},
               are_packed(d_x, d_out, x));
}

void gated_forward(DType type, Activation activation, void* out, const void* gate_up,
                   std::int64_t rows, std::int64_t width) {
  with_gate(activation, [&](auto gating) {
    for_rows(rows, width, GatedForward<gating>{{out, type}, {gate_up, type}, width},
             are_rows_packed(width, width, out, gate_up));
  });
}

void gated_backward(DType type, Activation activation, void* d_gate_up, const void* d_out,
                    const void* gate_up, std::int64_t rows, std::int64_t width) {
  with_gate(activation, [&](auto gating) {
    for_rows(rows, width,
             GatedBackward<gating>{{d_gate_up, type}, {d_out, type}, {gate_up, type}, width},
             are_rows_packed(width, width, d_gate_up, d_out, gate_up));
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
