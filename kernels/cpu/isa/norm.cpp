// LayerNorm and RMSNorm: one text, `Centred` says whether the mean is taken out.
#include "common/functions.hpp"
#include "isa/column_sums.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// The factor of a norm.
template <bool Centred, class T, class Extent>
Vector weight_at(const T* weight, float offset, Extent extent) {
  const Vector stored = load(weight, extent);
  return Centred ? stored : stored + offset;
}

template <bool Centred, class T>
void forward_row(T* out, T* residual_out, float* mean, float* rstd, const T* residual, const T* x,
                 const T* weight, const T* bias, float offset, std::int64_t width, float epsilon) {
  if (x != nullptr) {
    for_vectors(0, width, [&](std::int64_t i, auto extent) {
      store(residual_out + i, load(residual + i, extent) + load(x + i, extent), extent);
    });
  }
  // Read back what was stored, so that the backward pass sees the statistics of its own input.
  Vector sum{};
  float centre = 0.0F;
  if (Centred) {
    for_vectors(0, width,
                [&](std::int64_t i, auto extent) { sum += load(residual_out + i, extent); });
    centre = sum_of_lanes(sum) / static_cast<float>(width);
    *mean = centre;
  }
  Vector squares{};
  for_vectors(0, width, [&](std::int64_t i, auto extent) {
    // Lanes past the end load as zero and must stay so.
    const Vector apart = load(residual_out + i, extent) - inside(splat(centre), extent);
    squares = multiply_add(apart, apart, squares);
  });
  const float spread =
      1.0F / __builtin_sqrtf(sum_of_lanes(squares) / static_cast<float>(width) + epsilon);
  *rstd = spread;
  for_vectors(0, width, [&](std::int64_t i, auto extent) {
    const Vector unit = (load(residual_out + i, extent) - centre) * spread;
    const Vector shift = Centred ? load(bias + i, extent) : Vector{};
    const Vector factor = weight_at<Centred>(weight + i, offset, extent);
    store(out + i, multiply_add(unit, factor, shift), extent);
  });
}

/// d_x = rstd·(g − mean(g) − unit·mean(g·unit)) with g = d_out·weight; mean(g) only where Centred.
template <bool Centred, class T>
void backward_row(T* d_x, float* d_weight, float* d_bias, const T* d_out, const T* input,
                  float mean, float rstd, const T* weight, float offset, std::int64_t width,
                  bool accumulate) {
  Vector sum{};
  Vector product_sum{};
  for_vectors(0, width, [&](std::int64_t i, auto extent) {
    const Vector d = load(d_out + i, extent);
    const Vector unit = (load(input + i, extent) - mean) * rstd;
    const Vector g = d * weight_at<Centred>(weight + i, offset, extent);
    sum += g;
    product_sum = multiply_add(g, unit, product_sum);
    store(d_weight + i, multiply_add(d, unit, load(d_weight + i, extent)), extent);
    if (Centred) store(d_bias + i, load(d_bias + i, extent) + d, extent);
  });
  const float count = static_cast<float>(width);
  const float g_mean = Centred ? sum_of_lanes(sum) / count : 0.0F;
  const float product_mean = sum_of_lanes(product_sum) / count;
  for_vectors(0, width, [&](std::int64_t i, auto extent) {
    const Vector unit = (load(input + i, extent) - mean) * rstd;
    const Vector g = load(d_out + i, extent) * weight_at<Centred>(weight + i, offset, extent);
    const Vector before = accumulate ? load(d_x + i, extent) : Vector{};
    const Vector apart = multiply_add(unit, splat(-product_mean), g - g_mean);
    store(d_x + i, multiply_add(splat(rstd), apart, before), extent);
  });
}

}  // namespace

void norm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                  const void* residual, const void* x, const void* weight, const void* bias,
                  float offset, std::int64_t rows, std::int64_t width, float epsilon) {
  with_either<true, false>(bias != nullptr, [&](auto centred) {
    constexpr bool is_centred = centred;
    with_type(type, [&](auto tag) {
      using T = decltype(tag);
      for_items(rows, width, [&](std::int64_t row) {
        const std::int64_t first = row * width;
        forward_row<is_centred>(
            static_cast<T*>(out) + first, static_cast<T*>(residual_out) + first,
            is_centred ? mean + row : nullptr, rstd + row, static_cast<const T*>(residual) + first,
            x != nullptr ? static_cast<const T*>(x) + first : nullptr,
            static_cast<const T*>(weight), static_cast<const T*>(bias), offset, width, epsilon);
      });
    });
  });
}

void norm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                   const void* input, const float* mean, const float* rstd, const void* weight,
                   float offset, std::int64_t rows, std::int64_t width, bool accumulate_input,
                   bool accumulate_weights, void* workspace) {
  with_either<true, false>(d_bias != nullptr, [&](auto centred) {
    constexpr bool is_centred = centred;
    with_type(type, [&](auto tag) {
      using T = decltype(tag);
      const ColumnSums sums(rows, width, is_centred ? 2 : 1, workspace);
      sums.add_rows(width, [&](std::int64_t row, float* weight_sums) {
        const std::int64_t first = row * width;
        backward_row<is_centred>(static_cast<T*>(d_x) + first, weight_sums, weight_sums + width,
                                 static_cast<const T*>(d_out) + first,
                                 static_cast<const T*>(input) + first,
                                 is_centred ? mean[row] : 0.0F, rstd[row],
                                 static_cast<const T*>(weight), offset, width, accumulate_input);
      });
      sums.combine(static_cast<T*>(d_weight), 0, accumulate_weights);
      if (is_centred) sums.combine(static_cast<T*>(d_bias), 1, accumulate_weights);
    });
  });
}

std::size_t norm_workspace_bytes(std::int64_t width) {
  return ColumnSums::workspace_bytes(width);
}

void bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                   std::int64_t width, std::int64_t stride, bool accumulate, void* workspace) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const ColumnSums sums(rows, width, 1, workspace);
    sums.add_rows(width, [&](std::int64_t row, float* bias_sums) {
      const T* d_row = static_cast<const T*>(d_out) + row * stride;
      for_vectors(0, width, [&](std::int64_t i, auto extent) {
        store(bias_sums + i, load(bias_sums + i, extent) + load(d_row + i, extent), extent);
      });
    });
    sums.combine(static_cast<T*>(d_bias), 0, accumulate);
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
