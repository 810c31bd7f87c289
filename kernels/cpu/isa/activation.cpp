// Activations, with a product before them, and SwiGLU.
#include "common/elementary_functions.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"
#include "matmul.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

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

void matmul_activation_forward(const MatmulShape& shape, Activation activation, const void* a,
                               const void* b, const void* bias, void* c, void* activated,
                               void* workspace) {
  matmul(shape, a, b, bias, c, workspace);
  activation_forward(shape.out_type, activation, activated, c, shape.m * shape.n);
}

void matmul_activation_backward(const MatmulShape& shape, Activation activation, const void* a,
                                const void* b, const void* x, void* c, void* workspace) {
  matmul(shape, a, b, nullptr, c, workspace);
  activation_backward(shape.out_type, activation, c, c, x, shape.m * shape.n);
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
        store(to + i, swiglu(load(gate + i, extent), load(up + i, extent)), extent);
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
        const SwigluSlopes slopes =
            swiglu_slopes(load(gate_row + i, extent), load(gate_row + width + i, extent),
                          load(d_row + i, extent));
        store(d_gate + i, slopes.gate, extent);
        store(d_gate + width + i, slopes.up, extent);
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
