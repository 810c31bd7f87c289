#pragma once
/// Matrix products through oneDNN, in types that it computes with on this processor.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::products {

/// Memory that starts at a multiple of this needs no second look at a cache line.
inline constexpr std::size_t workspace_alignment = 64;

constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}
constexpr std::size_t bytes_of(DType type, std::int64_t count) {
  return (type == DType::f32 ? 4U : 2U) * static_cast<std::size_t>(count);
}

using dnnl::memory;

inline memory::data_type data_type(DType type) {
  if (type == DType::f32) return memory::data_type::f32;
  return type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f16;
}

/// rows × columns, or stored the other way round; `stride` elements from one stored row to the
/// next.
inline memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed,
                           std::int64_t stride, DType type) {
  return {{rows, columns},
          data_type(type),
          transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

inline const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline dnnl::stream& stream() {
  static dnnl::stream in_order(engine());
  return in_order;
}

/// `operands`: a, b, perhaps the bias, and c. oneDNN 3 has no descriptions of operations any more.
template <typename... Descriptions>
dnnl::matmul::primitive_desc choose(const dnnl::primitive_attr& attributes,
                                    const Descriptions&... operands) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), operands..., attributes};
#else
  return {dnnl::matmul::desc(operands...), attributes, engine()};
#endif
}

/// One oneDNN primitive, built when it is first run: the terms [first_k, first_k + shape.k) of a
/// product.
class Piece {
 public:
  /// `shape` is the piece's, `whole_k` the product's. Throws dnnl::error where oneDNN has no fast
  /// code for the types.
  Piece(const MatmulShape& shape, std::int64_t first_k, std::int64_t whole_k)
      : a_offset_(bytes_of(shape.type, shape.transpose_a ? first_k * shape.row_of_a() : first_k)),
        b_offset_(bytes_of(shape.type, shape.transpose_b ? first_k : first_k * shape.n)),
        has_bias_(shape.has_bias) {
    const memory::desc a =
        matrix(shape.m, shape.k, shape.transpose_a, shape.row_of_a(), shape.type);
    const memory::desc b = matrix(shape.k, shape.n, shape.transpose_b,
                                  shape.transpose_b ? whole_k : shape.n, shape.type);
    const memory::desc bias = matrix(1, shape.n, false, shape.n, shape.type);
    const memory::desc c = matrix(shape.m, shape.n, false, shape.row_of_c(), shape.out_type);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (shape.accumulate) {
      dnnl::post_ops after;
      after.append_sum(1.0F);
      attributes.set_post_ops(after);
    }
    const dnnl::matmul::primitive_desc chosen =
        has_bias_ ? choose(attributes, a, b, bias, c) : choose(attributes, a, b, c);
    // Its plain loops are a hundred times slower than an fp32 product of converted operands.
    if (shape.type != DType::f32 && std::string_view(chosen.impl_info_str()).starts_with("ref"))
      throw dnnl::error(dnnl_unimplemented, "no fast product of this type");
    chosen_ = chosen;
    scratchpad_bytes_ = chosen.scratchpad_desc().get_size();
    arguments_ = {memory(a, engine(), nullptr), memory(b, engine(), nullptr),
                  memory(c, engine(), nullptr), memory(chosen.scratchpad_desc(), engine(), nullptr),
                  memory(bias, engine(), nullptr)};
  }

  [[nodiscard]] std::size_t scratchpad_bytes() const { return scratchpad_bytes_; }

  void run(const char* a, const char* b, const void* bias, void* c, void* scratchpad) {
    // Code is generated here, and what it was chosen by is needed no more.
    if (!primitive_) primitive_ = dnnl::matmul(std::exchange(chosen_, {}));
    arguments_[0].set_data_handle(const_cast<char*>(a + a_offset_));
    arguments_[1].set_data_handle(const_cast<char*>(b + b_offset_));
    arguments_[2].set_data_handle(c);
    arguments_[3].set_data_handle(scratchpad);
    arguments_[4].set_data_handle(const_cast<void*>(bias));
    const std::array<dnnl_exec_arg_t, 5> list = {{{DNNL_ARG_SRC, arguments_[0].get()},
                                                  {DNNL_ARG_WEIGHTS, arguments_[1].get()},
                                                  {DNNL_ARG_DST, arguments_[2].get()},
                                                  {DNNL_ARG_SCRATCHPAD, arguments_[3].get()},
                                                  {DNNL_ARG_BIAS, arguments_[4].get()}}};
    // The C call: the C++ one wants a map, built on the heap every time.
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), stream().get(), has_bias_ ? 5 : 4, list.data()),
        "matrix product failed");
  }

 private:
  std::size_t a_offset_;
  std::size_t b_offset_;
  bool has_bias_;
  std::size_t scratchpad_bytes_ = 0;
  dnnl::matmul::primitive_desc chosen_;  ///< until it is run
  dnnl::matmul primitive_;
  std::array<memory, 5> arguments_;
};

/// A product by oneDNN, in one piece or, where that is faster, in several along k.
class DirectProduct {
 public:
  /// Throws as its pieces do.
  explicit DirectProduct(const MatmulShape& shape) {
    // oneDNN's fp32 kernels lose a quarter of their speed on very long sums over an untransposed B.
    constexpr std::int64_t longest_sum = 3072;
    const bool split = shape.type == DType::f32 && !shape.transpose_a && !shape.transpose_b &&
                       shape.k > 2 * longest_sum;
    const std::int64_t step = split ? longest_sum : shape.k;
    for (std::int64_t first_k = 0; first_k < shape.k; first_k += step) {
      MatmulShape part = shape;
      part.stride_a = shape.row_of_a();
      part.k = std::min(step, shape.k - first_k);
      part.accumulate = shape.accumulate || first_k > 0;
      part.has_bias = shape.has_bias && first_k == 0;
      pieces_.emplace_back(part, first_k, shape.k);
    }
  }

  [[nodiscard]] std::size_t scratchpad_bytes() const {
    std::size_t bytes = 0;
    for (const Piece& piece : pieces_) bytes = std::max(bytes, piece.scratchpad_bytes());
    return bytes;
  }

  /// `scratchpad` is aligned.
  void run(const void* a, const void* b, const void* bias, void* c, void* scratchpad) {
    for (Piece& piece : pieces_)
      piece.run(static_cast<const char*>(a), static_cast<const char*>(b), bias, c, scratchpad);
  }

 private:
  std::vector<Piece> pieces_;
};

}  // namespace dstune::kernels::products
