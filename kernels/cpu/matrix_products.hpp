#pragma once
/// A matrix product in types that oneDNN computes with on this processor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// A matrix product of 16-bit operands by fp32 products, for processors without code for the type.
///
/// Two of the three matrices contain the longest dimension. They are converted a panel of it at a
/// time, small enough to stay in cache until it is used; the third is converted as a whole, so the
/// workspace does not grow with the longest dimension. Sums are kept in fp32 and rounded once.

class PanelProduct {
 public:
  explicit PanelProduct(const MatmulShape& shape);

  [[nodiscard]] std::size_t workspace_bytes() const;
  /// `workspace` is aligned.
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace);

 private:
  enum class Along { m, n, k };

  /// Part of a stored matrix: every row, or every column, or a panel of them.
  struct Region {
    std::int64_t first_row, first_column, rows, columns, stride;
    [[nodiscard]] std::int64_t offset() const { return first_row * stride + first_column; }
    [[nodiscard]] std::int64_t count() const { return rows * columns; }
  };
  /// Where the fp32 copies lie.
  struct Copies {
    float *a, *b, *c, *bias;
    void* scratchpad;
  };

  [[nodiscard]] Region region_a(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] Region region_b(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] Region region_c(std::int64_t first, std::int64_t count) const;
  [[nodiscard]] Copies place(void* workspace) const;
  /// The fp32 product of one panel; along k, the `later` ones add to what the first has begun.
  [[nodiscard]] DirectProduct panel(std::int64_t count, bool later) const;
  /// The one of the panel that begins at `first`.
  [[nodiscard]] DirectProduct& product_of(std::int64_t first);

  MatmulShape shape_;
  Along along_;
  std::int64_t length_;  ///< of the longest dimension
  std::int64_t step_;    ///< of a panel
  DirectProduct whole_;  ///< of a whole panel
  /// Along k, of the panels after the first, which add to it.
  std::optional<DirectProduct> later_;
  /// Of what is left over at the end, where it is less than a panel.
  std::optional<DirectProduct> rest_;
};

}  // namespace dstune::kernels
