#pragma once
/// A matrix product of 16-bit operands by fp32 products, for processors without code for the type.
///
/// Two of the three matrices contain the longest dimension. They are converted a panel of it at a
/// time, small enough to stay in cache until it is used; the third is converted as a whole, so the
/// workspace does not grow with the longest dimension. Sums are kept in fp32 and rounded once.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "direct_product.hpp"

namespace dstune::kernels {

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
