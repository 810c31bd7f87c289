#pragma once
/// A matrix product in types that oneDNN computes with on this processor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {

/// What starts at a multiple of this needs no second look at a cache line.
inline constexpr std::size_t workspace_alignment = 64;

[[nodiscard]] constexpr std::size_t padded(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}
[[nodiscard]] constexpr std::size_t bytes_of(DType type, std::int64_t count) {
  return (type == DType::f32 ? 4U : 2U) * static_cast<std::size_t>(count);
}

class DirectProduct {
 public:
  /// Throws dnnl::error where oneDNN has no fast code for the types.
  explicit DirectProduct(const MatmulShape& shape);

  [[nodiscard]] std::size_t scratchpad_bytes() const;
  /// `scratchpad` is aligned.
  void run(const void* a, const void* b, const void* bias, void* c, void* scratchpad);

 private:
  /// One oneDNN primitive: the terms [first_k, first_k + shape.k) of the product.
  class Piece {
   public:
    /// `shape` is the piece's, `whole_k` the product's.
    Piece(const MatmulShape& shape, std::int64_t first_k, std::int64_t whole_k);
    [[nodiscard]] std::size_t scratchpad_bytes() const { return scratchpad_bytes_; }
    void run(const char* a, const char* b, const void* bias, void* c, void* scratchpad);

   private:
    std::size_t a_offset_;
    std::size_t b_offset_;
    bool has_bias_;
    std::size_t scratchpad_bytes_ = 0;
    dnnl::matmul primitive_;
    std::array<dnnl::memory, 5> arguments_;
  };

  std::vector<Piece> pieces_;
};

}  // namespace dstune::kernels
