#pragma once
/// Matrix products that oneDNN has no code for, by dense fp32 ones over panels.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend_parts.hpp"
#include "direct_product.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::products {

/// The size of the panels' fp32 copies together: they should stay in the second-level caches.
inline constexpr std::int64_t panel_bytes = std::int64_t{2} << 20;
inline constexpr std::int64_t min_in_panel = 64;

/// The step that cuts `length` into equal panels, the last one possibly shorter.
inline std::int64_t panel_step(std::int64_t length, std::int64_t others) {
  const std::int64_t most =
      std::max(min_in_panel, panel_bytes / (std::int64_t{sizeof(float)} * others));
  const std::int64_t panels = (length + most - 1) / most;
  const std::int64_t equal = (length + panels - 1) / panels;
  return std::min(length, (equal + min_in_panel - 1) / min_in_panel * min_in_panel);
}

/// rows × columns elements with conversion; strides in elements.
inline void convert_rows(DType to, void* y, std::int64_t y_stride, DType from, const void* x,
                         std::int64_t x_stride, std::int64_t rows, std::int64_t columns) {
  const Table& table = cpu_table();
  if (y_stride == columns && x_stride == columns)
    return table.convert(to, y, from, x, rows * columns);
#pragma omp parallel for schedule(static) num_threads(threads_for(rows* columns))
  for (std::int64_t row = 0; row < rows; ++row) {
    table.convert(to, static_cast<char*>(y) + bytes_of(to, row * y_stride), from,
                  static_cast<const char*>(x) + bytes_of(from, row * x_stride), columns);
  }
}

/// A matrix product of any operands by dense fp32 products.
///
/// Two of the three matrices contain the longest dimension. They are converted a panel of it at a
/// time, small enough to stay in cache until it is used; the third is converted as a whole, so the
/// workspace does not grow with the longest dimension. Sums are kept in fp32 and rounded once.
class PanelProduct {
 public:
  explicit PanelProduct(const MatmulShape& shape)
      : shape_(shape),
        along_(shape.m >= std::max(shape.n, shape.k) ? Along::m
               : shape.n >= shape.k                  ? Along::n
                                                     : Along::k),
        length_(std::max({shape.m, shape.n, shape.k})),
        step_(panel_step(length_, shape.m + shape.n + shape.k - length_)),
        whole_(panel(step_, false)) {
    if (along_ == Along::k && step_ < length_) later_.emplace(panel(step_, true));
    if (length_ % step_ != 0) rest_.emplace(panel(length_ % step_, true));
  }

  [[nodiscard]] std::size_t workspace_bytes() const {
    std::size_t scratchpad = whole_.scratchpad_bytes();
    if (later_) scratchpad = std::max(scratchpad, later_->scratchpad_bytes());
    if (rest_) scratchpad = std::max(scratchpad, rest_->scratchpad_bytes());
    const Copies end = place(nullptr);
    return reinterpret_cast<std::size_t>(end.scratchpad) + scratchpad;
  }

  /// `workspace` is aligned.
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
    const Copies copies = place(workspace);
    const auto widen = [&](float* to, const Region& from, const void* matrix, DType type) {
      convert_rows(DType::f32, to, from.columns, type,
                   static_cast<const char*>(matrix) + bytes_of(type, from.offset()), from.stride,
                   from.rows, from.columns);
    };
    const auto narrow = [&](const Region& to) {
      convert_rows(shape_.out_type, static_cast<char*>(c) + bytes_of(shape_.out_type, to.offset()),
                   to.stride, DType::f32, copies.c, to.columns, to.rows, to.columns);
    };
    if (shape_.has_bias) cpu_table().convert(DType::f32, copies.bias, shape_.type, bias, shape_.n);
    if (along_ == Along::m) widen(copies.b, region_b(0, 0), b, shape_.type);
    if (along_ == Along::n) widen(copies.a, region_a(0, 0), a, shape_.type);
    const bool sums_stay = along_ == Along::k;
    if (sums_stay && shape_.accumulate) widen(copies.c, region_c(0, 0), c, shape_.out_type);

    for (std::int64_t first = 0; first < length_; first += step_) {
      const std::int64_t count = std::min(step_, length_ - first);
      if (along_ != Along::n) widen(copies.a, region_a(first, count), a, shape_.type);
      if (along_ != Along::m) widen(copies.b, region_b(first, count), b, shape_.type);
      if (!sums_stay && shape_.accumulate)
        widen(copies.c, region_c(first, count), c, shape_.out_type);
      const float* panel_bias = along_ == Along::n ? copies.bias + first : copies.bias;
      product_of(first).run(copies.a, copies.b, panel_bias, copies.c, copies.scratchpad);
      if (!sums_stay) narrow(region_c(first, count));
    }
    if (sums_stay) narrow(region_c(0, 0));
  }

 private:
  enum class Along { m, n, k };

  /// Part of a stored matrix: every row, or every column, or a panel of them.
  struct Region {
    std::int64_t first_row, first_column, rows, columns, stride;
    [[nodiscard]] std::int64_t offset() const { return first_row * stride + first_column; }
    [[nodiscard]] std::int64_t count() const { return rows * columns; }
  };
  /// The places of the fp32 copies.
  struct Copies {
    float *a, *b, *c, *bias;
    void* scratchpad;
  };

  [[nodiscard]] Region region_a(std::int64_t first, std::int64_t count) const {
    const std::int64_t stride = shape_.row_of_a();
    return shape_.transpose_a ? region(Along::k, Along::m, stride, first, count)
                              : region(Along::m, Along::k, stride, first, count);
  }
  [[nodiscard]] Region region_b(std::int64_t first, std::int64_t count) const {
    return shape_.transpose_b ? region(Along::n, Along::k, shape_.k, first, count)
                              : region(Along::k, Along::n, shape_.n, first, count);
  }
  [[nodiscard]] Region region_c(std::int64_t first, std::int64_t count) const {
    return region(Along::m, Along::n, shape_.row_of_c(), first, count);
  }
  /// Returns the panel of `count` from `first` on of a matrix with these dimensions, or all of it
  /// if it does not contain the longest one.
  [[nodiscard]] Region region(Along rows, Along columns, std::int64_t stride, std::int64_t first,
                              std::int64_t count) const {
    if (along_ == rows) return {first, 0, count, size(columns), stride};
    if (along_ == columns) return {0, first, size(rows), count, stride};
    return {0, 0, size(rows), size(columns), stride};
  }
  [[nodiscard]] std::int64_t size(Along dimension) const {
    return dimension == Along::m ? shape_.m : dimension == Along::n ? shape_.n : shape_.k;
  }

  [[nodiscard]] Copies place(void* workspace) const {
    auto next = reinterpret_cast<std::uintptr_t>(workspace);
    const auto take = [&](std::int64_t count) {
      const std::uintptr_t place = next;
      next += padded(bytes_of(DType::f32, count));
      return reinterpret_cast<float*>(place);
    };
    Copies copies{};
    copies.a = take(region_a(0, step_).count());
    copies.b = take(region_b(0, step_).count());
    copies.c = take(region_c(0, step_).count());
    copies.bias = take(shape_.has_bias ? shape_.n : 0);
    copies.scratchpad = reinterpret_cast<void*>(next);
    return copies;
  }

  /// The fp32 product of one panel; along k, the `later` ones add to what the first has begun.
  [[nodiscard]] DirectProduct panel(std::int64_t count, bool later) const {
    MatmulShape part = shape_;
    part.type = part.out_type = DType::f32;
    part.stride_a = part.stride_c = 0;
    if (along_ == Along::m) part.m = count;
    if (along_ == Along::n) part.n = count;
    if (along_ == Along::k) {
      part.k = count;
      part.accumulate = shape_.accumulate || later;
      part.has_bias = shape_.has_bias && !later;
    }
    return DirectProduct(part);
  }

  /// The one of the panel that begins at `first`.
  [[nodiscard]] DirectProduct& product_of(std::int64_t first) {
    if (length_ - first < step_) return *rest_;
    return first > 0 && later_ ? *later_ : whole_;
  }

  MatmulShape shape_;
  Along along_;
  std::int64_t length_;  ///< of the longest dimension
  std::int64_t step_;    ///< of a panel
  DirectProduct whole_;  ///< of a whole panel
  /// Along k, of the panels after the first, which add to it.
  std::optional<DirectProduct> later_;
  /// The product of the rest at the end, if it is less than a panel.
  std::optional<DirectProduct> rest_;
};

}  // namespace dstune::kernels::products
