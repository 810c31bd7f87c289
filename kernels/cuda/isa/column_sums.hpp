#pragma once
/// Sums over rows, for each column: partial sums over pieces of rows fixed by the shape, combined
/// in order.

#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

constexpr std::int64_t most_row_pieces = 64;
constexpr int most_sum_kinds = 2;

inline std::size_t column_sum_bytes(std::int64_t width) {
  return sizeof(float) * static_cast<std::size_t>(most_row_pieces * most_sum_kinds * width);
}

/// Columns that a lane adds up side by side where the addresses allow it.
constexpr int columns_of_lane = 4;

/// Term::kinds sums for each column: Term::add<N>(row, column, sums) adds a row's terms of N
/// columns. A warp has 32·N columns side by side, a block's warps share its rows.
template <int N, class Term>
struct ColumnPartials {
  static constexpr int columns = warp_size * N;
  static constexpr std::size_t shared_bytes =
      sizeof(float) * std::size_t{Term::kinds} * most_warps * columns;

  Term term;
  float* partial;  ///< [piece][kind][column]
  std::int64_t rows, rows_per_piece, width;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const int lane = block.thread() % warp_size;
    const int warp = block.thread() / warp_size;
    const std::int64_t column = block.index() * columns + lane * N;
    const std::int64_t begin = block.piece() * rows_per_piece;
    const std::int64_t end = begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    Values<N> sums[Term::kinds] = {};
    for (std::int64_t row = begin + warp; column < width && row < end; row += most_warps)
      term.template add<N>(row, column, sums);
    const Shared<float> of_warps = block.shared<float>();
    for (int kind = 0; kind < Term::kinds; ++kind) {
      for (int k = 0; k < N; ++k)
        of_warps[((kind * most_warps + warp) * N + k) * warp_size + lane] = sums[kind].of[k];
    }
    block.sync();
    if (warp > 0 || column >= width) return;
    for (int kind = 0; kind < Term::kinds; ++kind) {
      for (int k = 0; k < N; ++k) {
        float sum = 0.0F;
        for (int other = 0; other < most_warps; ++other)
          sum += of_warps[((kind * most_warps + other) * N + k) * warp_size + lane];
        partial[(block.piece() * Term::kinds + kind) * width + column + k] = sum;
      }
    }
  }
};

/// A thread a column; a piece of the launch is a kind.
template <int Kinds>
struct ColumnTotals {
  Output totals[Kinds];
  const float* partial;
  std::int64_t pieces, width;
  bool accumulate;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t column = block.index() * block.threads() + block.thread();
    if (column >= width) return;
    const Output to = block.piece() == 0 ? totals[0] : totals[Kinds - 1];
    float total = accumulate ? to[column] : 0.0F;
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      total += partial[(piece * Kinds + block.piece()) * width + column];
    to.set(column, total);
  }
};

/// totals[kind] (+)= the sums over the terms' tensors, whose rows begin at multiples of `stride`.
/// workspace: column_sum_bytes(width).
template <class Term, class... Tensors>
void sum_columns(const Term& term, std::int64_t rows, std::int64_t width, std::int64_t stride,
                 const Output (&totals)[Term::kinds], bool accumulate, void* workspace,
                 const Tensors&... tensors) {
  if (width <= 0) return;
  static_assert(Term::kinds <= most_sum_kinds);
  constexpr std::int64_t fewest_rows = 4 * most_warps;
  const std::int64_t share = divide_up(rows, most_row_pieces);
  const std::int64_t rows_per_piece = share < fewest_rows ? fewest_rows : share;
  const std::int64_t pieces = divide_up(rows, rows_per_piece);
  auto* partial = static_cast<float*>(workspace);
  const auto add_up = [&](auto partials) {
    using Partials = decltype(partials);
    launch({.blocks = divide_up(width, Partials::columns),
            .threads = most_warps * warp_size,
            .shared_bytes = Partials::shared_bytes,
            .pieces = pieces},
           partials);
  };
  if (pieces > 0 && width % columns_of_lane == 0 && stride % columns_of_lane == 0 &&
      (... && is_packed(tensors.data))) {
    add_up(ColumnPartials<columns_of_lane, Term>{term, partial, rows, rows_per_piece, width});
  } else if (pieces > 0) {
    add_up(ColumnPartials<1, Term>{term, partial, rows, rows_per_piece, width});
  }
  ColumnTotals<Term::kinds> all{{}, partial, pieces, width, accumulate};
  for (int kind = 0; kind < Term::kinds; ++kind) all.totals[kind] = totals[kind];
  // Small blocks: there are few columns for as many processors as there are.
  constexpr int threads = 64;
  launch({.blocks = divide_up(width, threads), .threads = threads, .pieces = Term::kinds}, all);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
