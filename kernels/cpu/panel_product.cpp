#include "panel_product.hpp"

#include <algorithm>

#include "threads.hpp"

namespace dstune::kernels {
namespace {

/// Of the panels' fp32 copies together: they should stay in the second-level caches.
constexpr std::int64_t panel_bytes = std::int64_t{2} << 20;
constexpr std::int64_t fewest_in_panel = 64;

/// The step that cuts `length` into equal panels, the last one possibly shorter.
std::int64_t panel_step(std::int64_t length, std::int64_t others) {
  const std::int64_t most =
      std::max(fewest_in_panel, panel_bytes / (std::int64_t{sizeof(float)} * others));
  const std::int64_t panels = (length + most - 1) / most;
  const std::int64_t equal = (length + panels - 1) / panels;
  return std::min(length, (equal + fewest_in_panel - 1) / fewest_in_panel * fewest_in_panel);
}

/// rows × columns elements with conversion; strides in elements.
void convert_rows(DType to, void* y, std::int64_t y_stride, DType from, const void* x,
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

}  // namespace

PanelProduct::PanelProduct(const MatmulShape& shape)
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

DirectProduct PanelProduct::panel(std::int64_t count, bool later) const {
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

PanelProduct::Region PanelProduct::region_a(std::int64_t first, std::int64_t count) const {
  const Region stored = shape_.transpose_a ? Region{0, 0, shape_.k, shape_.m, shape_.row_of_a()}
                                           : Region{0, 0, shape_.m, shape_.k, shape_.row_of_a()};
  if (along_ == Along::n) return stored;
  if ((along_ == Along::k) == shape_.transpose_a)
    return {first, 0, count, stored.columns, stored.stride};
  return {0, first, stored.rows, count, stored.stride};
}

PanelProduct::Region PanelProduct::region_b(std::int64_t first, std::int64_t count) const {
  const Region stored = shape_.transpose_b ? Region{0, 0, shape_.n, shape_.k, shape_.k}
                                           : Region{0, 0, shape_.k, shape_.n, shape_.n};
  if (along_ == Along::m) return stored;
  if ((along_ == Along::n) == shape_.transpose_b)
    return {first, 0, count, stored.columns, stored.stride};
  return {0, first, stored.rows, count, stored.stride};
}

PanelProduct::Region PanelProduct::region_c(std::int64_t first, std::int64_t count) const {
  if (along_ == Along::m) return {first, 0, count, shape_.n, shape_.row_of_c()};
  if (along_ == Along::n) return {0, first, shape_.m, count, shape_.row_of_c()};
  return {0, 0, shape_.m, shape_.n, shape_.row_of_c()};
}

std::size_t PanelProduct::workspace_bytes() const {
  std::size_t scratchpad = whole_.scratchpad_bytes();
  if (later_) scratchpad = std::max(scratchpad, later_->scratchpad_bytes());
  if (rest_) scratchpad = std::max(scratchpad, rest_->scratchpad_bytes());
  const Copies end = place(nullptr);
  return reinterpret_cast<std::size_t>(end.scratchpad) + scratchpad;
}

PanelProduct::Copies PanelProduct::place(void* workspace) const {
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

void PanelProduct::run(const void* a, const void* b, const void* bias, void* c, void* workspace) {
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

DirectProduct& PanelProduct::product_of(std::int64_t first) {
  if (length_ - first < step_) return *rest_;
  return first > 0 && later_ ? *later_ : whole_;
}

}  // namespace dstune::kernels
