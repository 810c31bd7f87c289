// LayerNorm and RMSNorm: one text, `Centred` says whether the mean is taken out.
#include "common/functions.hpp"
#include "isa/column_sums.hpp"
#include "isa/parallel.hpp"
#include "matmul.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <bool Centred, class T>
void forward_row(T* out, T* residual_out, float* mean, float* rstd, const T* residual, const T* x,
                 const T* weight, const T* bias, std::int64_t width, float epsilon) {
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
    store(out + i, multiply_add(unit, load(weight + i, extent), shift), extent);
  });
}

template <bool Centred>
void forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
             const void* residual, const void* x, const void* weight, const void* bias,
             std::int64_t rows, std::int64_t width, float epsilon) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    for_items(rows, width, [&](std::int64_t row) {
      const std::int64_t first = row * width;
      forward_row<Centred>(
          static_cast<T*>(out) + first, static_cast<T*>(residual_out) + first,
          Centred ? mean + row : nullptr, rstd + row, static_cast<const T*>(residual) + first,
          x != nullptr ? static_cast<const T*>(x) + first : nullptr, static_cast<const T*>(weight),
          static_cast<const T*>(bias), width, epsilon);
    });
  });
}

/// d_x = rstd·(g − mean(g) − unit·mean(g·unit)) with g = d_out·weight; mean(g) only where Centred.
template <bool Centred, class T>
void backward_row(T* d_x, float* d_weight, float* d_bias, const T* d_out, const T* input,
                  float mean, float rstd, const T* weight, std::int64_t width, bool accumulate) {
  Vector sum{};
  Vector product_sum{};
  for_vectors(0, width, [&](std::int64_t i, auto extent) {
    const Vector d = load(d_out + i, extent);
    const Vector unit = (load(input + i, extent) - mean) * rstd;
    const Vector g = d * load(weight + i, extent);
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
    const Vector g = load(d_out + i, extent) * load(weight + i, extent);
    const Vector before = accumulate ? load(d_x + i, extent) : Vector{};
    const Vector apart = multiply_add(unit, splat(-product_mean), g - g_mean);
    store(d_x + i, multiply_add(splat(rstd), apart, before), extent);
  });
}

template <bool Centred>
void backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
              const void* input, const float* mean, const float* rstd, const void* weight,
              std::int64_t rows, std::int64_t width, bool accumulate_input, bool accumulate_weights,
              void* workspace) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const ColumnSums sums(rows, width, Centred ? 2 : 1, workspace);
    for_items(sums.blocks(), sums.rows_per_block() * width, [&](std::int64_t block) {
      float* weight_sums = sums.clear(block, 0);
      float* bias_sums = Centred ? sums.clear(block, 1) : nullptr;
      for (std::int64_t row = sums.begin(block); row < sums.end(block); ++row) {
        const std::int64_t first = row * width;
        backward_row<Centred>(static_cast<T*>(d_x) + first, weight_sums, bias_sums,
                              static_cast<const T*>(d_out) + first,
                              static_cast<const T*>(input) + first, Centred ? mean[row] : 0.0F,
                              rstd[row], static_cast<const T*>(weight), width, accumulate_input);
      }
    });
    sums.combine(static_cast<T*>(d_weight), 0, accumulate_weights);
    if (Centred) sums.combine(static_cast<T*>(d_bias), 1, accumulate_weights);
  });
}

}  // namespace

void layernorm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                       const void* residual, const void* x, const void* weight, const void* bias,
                       std::int64_t rows, std::int64_t width, float epsilon) {
  forward<true>(type, out, residual_out, mean, rstd, residual, x, weight, bias, rows, width,
                epsilon);
}

void rmsnorm_forward(DType type, void* out, void* residual_out, float* rstd, const void* residual,
                     const void* x, const void* weight, std::int64_t rows, std::int64_t width,
                     float epsilon) {
  forward<false>(type, out, residual_out, nullptr, rstd, residual, x, weight, nullptr, rows, width,
                 epsilon);
}

void layernorm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                        const void* input, const float* mean, const float* rstd, const void* weight,
                        std::int64_t rows, std::int64_t width, bool accumulate_input,
                        bool accumulate_weights, void* workspace) {
  backward<true>(type, d_x, d_weight, d_bias, d_out, input, mean, rstd, weight, rows, width,
                 accumulate_input, accumulate_weights, workspace);
}

void rmsnorm_backward(DType type, void* d_x, void* d_weight, const void* d_out, const void* input,
                      const float* rstd, const void* weight, std::int64_t rows, std::int64_t width,
                      bool accumulate_input, bool accumulate_weights, void* workspace) {
  backward<false>(type, d_x, d_weight, nullptr, d_out, input, nullptr, rstd, weight, rows, width,
                  accumulate_input, accumulate_weights, workspace);
}

std::size_t norm_workspace_bytes(std::int64_t width) {
  return ColumnSums::workspace_bytes(width);
}

void bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                   std::int64_t width, std::int64_t stride, bool accumulate, void* workspace) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const ColumnSums sums(rows, width, 1, workspace);
    for_items(sums.blocks(), sums.rows_per_block() * width, [&](std::int64_t block) {
      float* bias_sums = sums.clear(block, 0);
      for (std::int64_t row = sums.begin(block); row < sums.end(block); ++row) {
        const T* d_row = static_cast<const T*>(d_out) + row * stride;
        for_vectors(0, width, [&](std::int64_t i, auto extent) {
          store(bias_sums + i, load(bias_sums + i, extent) + load(d_row + i, extent), extent);
        });
      }
    });
    sums.combine(static_cast<T*>(d_bias), 0, accumulate);
  });
}

void matmul_bias_backward(const MatmulShape& shape, const void* a, const void* b, void* c,
                          void* d_bias, void* workspace) {
  matmul(shape, a, b, nullptr, c, workspace);
  bias_backward(shape.type, d_bias, a, shape.k, shape.m, shape.row_of_a(), shape.accumulate,
                workspace);
}

}  // namespace dstune::kernels::DSTUNE_ISA
