// LayerNorm and RMSNorm: one text, `Centred` says whether the mean is taken out.
#include "common/functions.hpp"
#include "isa/column_sums.hpp"
#include "isa/row_part.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// The factor of a norm.
template <bool Centred>
DSTUNE_FUNCTION float with_offset(float weight, float offset) {
  return Centred ? weight : weight + offset;
}

template <bool Centred, int kept>
struct NormForward {
  Output out, residual_out;
  float* mean;
  float* rstd;
  Input residual, x;
  Input weight, bias;
  float offset;
  std::int64_t width;
  float epsilon;

  DSTUNE_DEVICE DType type() const { return out.type; }
  DSTUNE_DEVICE void assume(DType all) {
    out.type = residual_out.type = residual.type = x.type = weight.type = bias.type = all;
  }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * width;
    const RowPart<N, kept> part(block, row, width);
    const typename RowPart<N, kept>::Kept input = sum_of<N>(part, begin);
    const float count = static_cast<float>(width);
    float centre = 0.0F;
    if (Centred) {
      float sum = 0.0F;
      part.for_each(
          [&](int, const Values<N>& values) {
            for (int k = 0; k < N; ++k) sum += values.of[k];
          },
          input);
      centre = block_sum(block, sum) / count;
    }
    float squares = 0.0F;
    part.for_each(
        [&](int, const Values<N>& values) {
          for (int k = 0; k < N; ++k) {
            const float apart = values.of[k] - centre;
            squares = multiply_add(apart, apart, squares);
          }
        },
        input);
    const float spread = 1.0F / square_root(block_sum(block, squares) / count + epsilon);
    part.for_each(
        [&](int i, Values<N> values) {
          const Values<N> factor = weight.load<N>(i);
          Values<N> shift{};
          if (Centred) shift = bias.load<N>(i);
          for (int k = 0; k < N; ++k)
            values.of[k] = multiply_add((values.of[k] - centre) * spread,
                                        with_offset<Centred>(factor.of[k], offset), shift.of[k]);
          out.store(begin + i, values);
        },
        input);
    if (block.thread() != 0) return;
    rstd[row] = spread;
    if (Centred) mean[row] = centre;
  }

 private:
  /// The input of the norm: residual + x, or residual_out itself. The former is stored in
  /// residual_out and taken as it is there, so that the backward pass sees the statistics of its
  /// own input.
  template <int N>
  DSTUNE_DEVICE typename RowPart<N, kept>::Kept sum_of(const RowPart<N, kept>& part,
                                                       std::int64_t begin) const {
    const Input stored{residual_out.data, residual_out.type};
    if (x.data == nullptr) return part.load(stored);
    typename RowPart<N, kept>::Kept sum = part.load(residual);
    const typename RowPart<N, kept>::Kept terms = part.load(x);
    sum.from = stored;
    const auto add = [&](int i, Values<N>& values, const Values<N>& term) {
      values += term;
      values = residual_out.rounded(values);
      residual_out.store(begin + i, values);
    };
    DSTUNE_UNROLL
    for (int j = 0; j < kept; ++j) {
      const int i = part.place(j);
      if (i < width) add(i, sum.of[j], terms.of[j]);
    }
    part.for_others([&](int i) {
      Values<N> values = residual.load<N>(begin + i);
      add(i, values, x.load<N>(begin + i));
    });
    return sum;
  }
};

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
  float offset;
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
            const float g = d.of[k] * with_offset<Centred>(factor.of[k], offset);
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
            multiply_add(unit.of[k], -product_mean,
                         d.of[k] * with_offset<Centred>(factor.of[k], offset) - g_mean);
        result.of[k] = multiply_add(spread, apart, accumulate ? old.of[k] : 0.0F);
      }
      d_x.store(begin + i, result);
      return unit;
    };
    then(part, finish, gradient, normed, before);
  }
};

/// A thread's own sums of the columns that it has: of one pack in registers, of two in shared
/// memory. Registers for these, too, would leave a multiprocessor room for two blocks.
template <int kinds, int kept>
class OwnSums {
 public:
  static constexpr int N = pack;
  static constexpr bool are_shared = kept > 1;
  static constexpr std::size_t shared_bytes =
      are_shared ? sizeof(float) * kinds * kept * widest_row : 0;

  DSTUNE_DEVICE explicit OwnSums(const Block& block)
      : shared_(block.shared<float>(reduction_bytes)) {}

  /// The sums of the pack that begins at column i.
  DSTUNE_DEVICE Values<N> at(int kind, int i) const {
    Values<N> sums = of_kinds_[kind];
    for (int k = 0; k < N && are_shared; ++k) sums.of[k] = shared_[place(kind, i, k)];
    return sums;
  }
  DSTUNE_DEVICE void set(int kind, int i, const Values<N>& sums) {
    of_kinds_[kind] = sums;
    for (int k = 0; k < N && are_shared; ++k) shared_[place(kind, i, k)] = sums.of[k];
  }

 private:
  /// Neighbours read side by side. Distances are constants, or each would be a register.
  static DSTUNE_DEVICE int place(int kind, int i, int k) {
    return (kind * N + k) * kept * cuda::max_threads + i / N;
  }

  Shared<float> shared_;
  Values<N> of_kinds_[kinds];
};

/// Backward for rows that a block's threads keep whole. A block has a piece of the rows, and adds
/// up its share of the weights' gradients on the way, so that everything is read once.
template <bool Centred, int kept>
struct NormBackwardOnce {
  static constexpr int min_blocks = kept > 1 ? 3 : 0;
  static constexpr int kinds = Centred ? 2 : 1;
  static constexpr int N = pack;
  using Sums = OwnSums<kinds, kept>;

  NormBackward<Centred, kept, true> body;
  float* partial;  ///< [piece][kind][column]
  std::int64_t rows, rows_per_piece;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    with_known_types(body, [&](const auto& known) { add_up(block, known); });
  }

 private:
  DSTUNE_DEVICE void add_up(const Block& block,
                            const NormBackward<Centred, kept, true>& known) const {
    Sums all(block);
    const RowPart<N, kept, true> columns(block, 0, known.width);
    columns.for_kept([&](int i) {
      for (int kind = 0; kind < kinds; ++kind) all.set(kind, i, {});
    });
    const std::int64_t begin = block.index() * rows_per_piece;
    const std::int64_t end = begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    for (std::int64_t row = begin; row < end; ++row) {
      known.template with_row<N>(
          block, row, [&](const auto& part, const auto& finish, const auto&... parts) {
            part.for_kept(
                [&](int i, const Values<N>& d, const auto&... values) {
                  const Values<N> unit = finish(i, d, values...);
                  Values<N> products = all.at(0, i);
                  for (int k = 0; k < N; ++k)
                    products.of[k] = multiply_add(d.of[k], unit.of[k], products.of[k]);
                  all.set(0, i, products);
                  if (!Centred) return;
                  Values<N> plain = all.at(kinds - 1, i);
                  plain += d;
                  all.set(kinds - 1, i, plain);
                },
                parts...);
          });
    }
    float* const to = partial + block.index() * kinds * known.width;
    columns.for_kept([&](int i) {
      for (int kind = 0; kind < kinds; ++kind) {
        const Values<N> sums = all.at(kind, i);
        for (int k = 0; k < N; ++k) to[kind * known.width + i + k] = sums.of[k];
      }
    });
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

/// Returns as many as a large GPU takes at once; fewer of wide rows, which take more registers.
inline std::int64_t max_norm_pieces(std::int64_t width) {
  return width <= widest_row ? 1024 : 512;
}

template <bool Centred, int kept>
void backward_once(const NormBackward<Centred, kept, true>& body,
                   const Output (&d_weights)[Centred ? 2 : 1], std::int64_t rows,
                   bool accumulate_weights, void* workspace) {
  using Once = NormBackwardOnce<Centred, kept>;
  auto* const partial = static_cast<float*>(workspace);
  constexpr std::int64_t min_rows = 4;
  const std::int64_t share = divide_up(rows, max_norm_pieces(body.width));
  const std::int64_t rows_per_piece = share < min_rows ? min_rows : share;
  const std::int64_t pieces = divide_up(rows, rows_per_piece);
  if (pieces > 0) {
    launch({.blocks = pieces,
            .threads = static_cast<int>(divide_up(body.width, kept * pack * warp_size)) * warp_size,
            .shared_bytes = reduction_bytes + Once::Sums::shared_bytes},
           Once{body, partial, rows, rows_per_piece});
  }
  add_pieces(d_weights, partial, pieces, body.width, accumulate_weights);
}

}  // namespace

void norm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                  const void* residual, const void* x, const void* weight, const void* bias,
                  float offset, std::int64_t rows, std::int64_t width, float epsilon) {
  with_either<true, false>(bias != nullptr, [&](auto centred) {
    constexpr bool is_centred = centred;
    with_kept(width, [&](auto kept) {
      const NormForward<is_centred, kept> body{
          {out, type},    {residual_out, type}, mean,   rstd,  {residual, type}, {x, type},
          {weight, type}, {bias, type},         offset, width, epsilon};
      for_rows(rows, width, body,
               are_rows_packed(width, width, out, residual_out, residual, x, weight, bias));
    });
  });
}

void norm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                   const void* input, const float* mean, const float* rstd, const void* weight,
                   float offset, std::int64_t rows, std::int64_t width, bool accumulate_input,
                   bool accumulate_weights, void* workspace) {
  with_either<true, false>(d_bias != nullptr, [&](auto centred) {
    constexpr bool is_centred = centred;
    Output d_weights[is_centred ? 2 : 1] = {{d_weight, type}};
    if constexpr (is_centred) d_weights[1] = {d_bias, type};
    const auto body = [&]<int kept, bool fits>() {
      return NormBackward<is_centred, kept, fits>{{d_x, type}, {d_out, type}, {input, type},
                                                  mean,        rstd,          {weight, type},
                                                  offset,      width,         accumulate_input};
    };
    const bool packed = are_rows_packed(width, width, d_x, d_out, input, weight);
    if (packed && width > 0 && width <= widest_kept_row) {
      with_kept(width, [&](auto kept) {
        backward_once(body.template operator()<kept, true>(), d_weights, rows, accumulate_weights,
                      workspace);
      });
      return;
    }
    // Before d_x, which may take d_out's place.
    const NormWeightTerm<is_centred> term{{d_out, type}, {input, type}, mean, rstd, width};
    sum_columns(term, rows, width, d_weights, accumulate_weights, workspace,
                are_rows_packed(width, width, d_out, input));
    for_rows(rows, width, body.template operator()<1, false>(), packed);
  });
}

std::size_t norm_workspace_bytes(std::int64_t width) {
  const std::size_t of_columns = column_sum_bytes(width);
  if (width > widest_kept_row) return of_columns;
  const auto of_pieces =
      sizeof(float) * static_cast<std::size_t>(max_norm_pieces(width) * max_sum_kinds * width);
  return of_pieces > of_columns ? of_pieces : of_columns;
}

}  // namespace dstune::kernels::DSTUNE_ISA
