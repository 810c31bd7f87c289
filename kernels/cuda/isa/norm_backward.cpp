// LayerNorm and RMSNorm, backward: one text, `Centred` says whether the mean was taken out.
#include "common/functions.hpp"
#include "isa/column_sums.hpp"
#include "isa/row_part.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// One of two without a branch, which would hold back what is asked for behind it: the compiler is
/// not to see that the other one's values are there already.
DSTUNE_DEVICE Input either(bool first, Input one, Input other) {
  Input chosen{first ? one.data : other.data, one.type};
#ifdef __CUDA_ARCH__
  asm("" : "+l"(chosen.data));
#endif
  return chosen;
}

/// d_x = rstd·(g − mean(g) − unit·mean(g·unit)) with g = d_out·weight; mean(g) only where Centred.
template <bool Centred, int kept, bool fits = false>
struct NormBackward {
  Output d_x;
  Input d_out, input;
  const float* mean;
  const float* rstd;
  Input weight;
  std::int64_t width;
  bool accumulate;

  DSTUNE_DEVICE DType type() const { return d_x.type; }
  DSTUNE_DEVICE void assume(DType all) { d_x.type = d_out.type = input.type = weight.type = all; }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    with_row<N>(block, row, [&](const auto& part, const auto& finish, const auto&... parts) {
      part.for_each(finish, parts...);
    });
  }

  /// then(this thread's part of the row, finish, parts…): finish(i, values of parts…) stores d_x of
  /// a pack and gives its units, (input − mean)·rstd.
  template <int N, class Then>
  DSTUNE_DEVICE void with_row(const Block& block, std::int64_t row, Then then) const {
    const std::int64_t begin = row * width;
    const float centre = Centred ? mean[row] : 0.0F;
    const float spread = rstd[row];
    const RowPart<N, kept, fits> part(block, row, width);
    const auto gradient = part.load(d_out);
    const auto normed = part.load(input);
    const auto before = part.load(either(accumulate, {d_x.data, d_x.type}, d_out));
    Values<2> sums{};
    part.for_each(
        [&](int i, const Values<N>& d, const Values<N>& values) {
          const Values<N> factor = weight.load<N>(i);
          for (int k = 0; k < N; ++k) {
            const float g = d.of[k] * factor.of[k];
            sums.of[0] += g;
            sums.of[1] = multiply_add(g, (values.of[k] - centre) * spread, sums.of[1]);
          }
        },
        gradient, normed);
    sums = block_sums(block, sums);
    const float count = static_cast<float>(width);
    const float g_mean = Centred ? sums.of[0] / count : 0.0F;
    const float product_mean = sums.of[1] / count;
    const auto finish = [&](int i, const Values<N>& d, const Values<N>& values,
                            const Values<N>& old) {
      const Values<N> factor = weight.load<N>(i);
      Values<N> result{};
      Values<N> unit;
      for (int k = 0; k < N; ++k) {
        unit.of[k] = (values.of[k] - centre) * spread;
        const float apart =
            multiply_add(unit.of[k], -product_mean, d.of[k] * factor.of[k] - g_mean);
        result.of[k] = multiply_add(spread, apart, accumulate ? old.of[k] : 0.0F);
      }
      d_x.store(begin + i, result);
      return unit;
    };
    then(part, finish, gradient, normed, before);
  }
};

/// Of rows that a block's threads keep whole: a block has a piece of the rows, and adds up its
/// share of the weights' gradients on the way, so that everything is read once.
template <bool Centred, int kept>
struct NormBackwardOnce {
  static constexpr int kinds = Centred ? 2 : 1;
  static constexpr int N = pack;

  NormBackward<Centred, kept, true> body;
  float* partial;  ///< [piece][kind][column]
  std::int64_t rows, rows_per_piece;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    with_known_types(body, [&](const auto& known) { add_up(block, known); });
  }

 private:
  DSTUNE_DEVICE void add_up(const Block& block,
                            const NormBackward<Centred, kept, true>& known) const {
    struct Sums {
      Values<N> of[kept];
    };
    Sums products{};
    Sums plain{};
    const std::int64_t begin = block.index() * rows_per_piece;
    const std::int64_t end = begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    for (std::int64_t row = begin; row < end; ++row) {
      known.template with_row<N>(
          block, row,
          [&](const auto& part, const auto& finish, const auto& gradient, const auto&... others) {
            part.for_kept(
                [&](int i, Values<N>& product, Values<N>& sum, const Values<N>& d,
                    const auto&... values) {
                  const Values<N> unit = finish(i, d, values...);
                  for (int k = 0; k < N; ++k) {
                    product.of[k] = multiply_add(d.of[k], unit.of[k], product.of[k]);
                    if (Centred) sum.of[k] += d.of[k];
                  }
                },
                products, plain, gradient, others...);
          });
    }
    float* const to = partial + block.index() * kinds * known.width;
    RowPart<N, kept, true>(block, 0, known.width)
        .for_kept(
            [&](int i, const Values<N>& product, const Values<N>& sum) {
              for (int k = 0; k < N; ++k) {
                to[i + k] = product.of[k];
                if (Centred) to[known.width + i + k] = sum.of[k];
              }
            },
            products, plain);
  }
};

template <bool Centred>
struct NormWeightTerm {
  static constexpr int kinds = Centred ? 2 : 1;
  static constexpr int rows_together = 4;
  Input d_out, input;
  const float* mean;
  const float* rstd;
  std::int64_t width;

  DSTUNE_DEVICE DType type() const { return d_out.type; }
  DSTUNE_DEVICE void assume(DType all) { d_out.type = input.type = all; }

  template <int N>
  DSTUNE_DEVICE void add(std::int64_t row, std::int64_t column, Values<N>* sums) const {
    const Values<N> d = d_out.load<N>(row * width + column);
    const Values<N> values = input.load<N>(row * width + column);
    const float centre = Centred ? mean[row] : 0.0F;
    const float spread = rstd[row];
    for (int k = 0; k < N; ++k) {
      const float unit = (values.of[k] - centre) * spread;
      sums[0].of[k] = multiply_add(d.of[k], unit, sums[0].of[k]);
      if (Centred) sums[kinds - 1].of[k] += d.of[k];
    }
  }
};

/// As many as a large GPU takes at once; fewer of wide rows, which take more registers.
inline std::int64_t max_norm_pieces(std::int64_t width) {
  return width <= widest_row ? 1024 : 512;
}

template <bool Centred, int kept>
void backward_once(const NormBackward<Centred, kept, true>& body,
                   const Output (&d_weights)[Centred ? 2 : 1], std::int64_t rows,
                   bool accumulate_weights, void* workspace) {
  auto* const partial = static_cast<float*>(workspace);
  constexpr std::int64_t min_rows = 4;
  const std::int64_t share = divide_up(rows, max_norm_pieces(body.width));
  const std::int64_t rows_per_piece = share < min_rows ? min_rows : share;
  const std::int64_t pieces = divide_up(rows, rows_per_piece);
  if (pieces > 0) {
    launch({.blocks = pieces,
            .threads = static_cast<int>(divide_up(body.width, kept * pack * warp_size)) * warp_size,
            .shared_bytes = reduction_bytes},
           NormBackwardOnce<Centred, kept>{body, partial, rows, rows_per_piece});
  }
  add_pieces(d_weights, partial, pieces, body.width, accumulate_weights);
}

template <bool Centred>
void backward(DType type, void* d_x, const Output (&d_weights)[Centred ? 2 : 1], const void* d_out,
              const void* input, const float* mean, const float* rstd, const void* weight,
              std::int64_t rows, std::int64_t width, bool accumulate_input, bool accumulate_weights,
              void* workspace) {
  const auto body = [&]<int kept, bool fits>() {
    return NormBackward<Centred, kept, fits>{
        {d_x, type}, {d_out, type},  {input, type}, mean,
        rstd,        {weight, type}, width,         accumulate_input};
  };
  const bool packed = width % pack == 0 && is_packed(d_x) && is_packed(d_out) && is_packed(input) &&
                      is_packed(weight);
  if (packed && width > 0 && width <= widest_kept_row) {
    return with_kept(width, [&](auto kept) {
      backward_once(body.template operator()<kept, true>(), d_weights, rows, accumulate_weights,
                    workspace);
    });
  }
  // Before d_x, which may take d_out's place.
  const NormWeightTerm<Centred> term{{d_out, type}, {input, type}, mean, rstd, width};
  sum_columns(term, rows, width, width, d_weights, accumulate_weights, workspace, term.d_out,
              term.input);
  with_kept(width, [&](auto kept) {
    for_rows(rows, width, body.template operator()<kept, false>(), Input{d_x, type}, term.d_out,
             term.input, Input{weight, type});
  });
}

}  // namespace

void layernorm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                        const void* input, const float* mean, const float* rstd, const void* weight,
                        std::int64_t rows, std::int64_t width, bool accumulate_input,
                        bool accumulate_weights, void* workspace) {
  backward<true>(type, d_x, {{d_weight, type}, {d_bias, type}}, d_out, input, mean, rstd, weight,
                 rows, width, accumulate_input, accumulate_weights, workspace);
}

void rmsnorm_backward(DType type, void* d_x, void* d_weight, const void* d_out, const void* input,
                      const float* rstd, const void* weight, std::int64_t rows, std::int64_t width,
                      bool accumulate_input, bool accumulate_weights, void* workspace) {
  backward<false>(type, d_x, {{d_weight, type}}, d_out, input, nullptr, rstd, weight, rows, width,
                  accumulate_input, accumulate_weights, workspace);
}

std::size_t norm_workspace_bytes(std::int64_t width) {
  const std::size_t of_columns = column_sum_bytes(width);
  if (width > widest_kept_row) return of_columns;
  const auto of_pieces =
      sizeof(float) * static_cast<std::size_t>(max_norm_pieces(width) * max_sum_kinds * width);
  return of_pieces > of_columns ? of_pieces : of_columns;
}

}  // namespace dstune::kernels::DSTUNE_ISA
