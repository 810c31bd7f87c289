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

/// Term::kinds sums for each column: Term::add(row, column, sums) adds a row's terms. A warp has 32
/// columns side by side, a block's warps share its rows.
template <class Term>
struct ColumnPartials {
  Term term;
  float* partial;  ///< [piece][kind][column]
  std::int64_t rows, rows_per_piece, width;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const int lane = block.thread() % warp_size;
    const int warp = block.thread() / warp_size;
    const std::int64_t column = block.index() * warp_size + lane;
    const std::int64_t begin = block.piece() * rows_per_piece;
    const std::int64_t end = begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    float sums[Term::kinds] = {};
    for (std::int64_t row = begin + warp; column < width && row < end; row += most_warps)
      term.add(row, column, sums);
    const Shared<float> of_warps = block.shared<float>();
    for (int kind = 0; kind < Term::kinds; ++kind)
      of_warps[(kind * most_warps + warp) * warp_size + lane] = sums[kind];
    block.sync();
    if (warp > 0 || column >= width) return;
    for (int kind = 0; kind < Term::kinds; ++kind) {
      float sum = 0.0F;
      for (int other = 0; other < most_warps; ++other)
        sum += of_warps[(kind * most_warps + other) * warp_size + lane];
      partial[(block.piece() * Term::kinds + kind) * width + column] = sum;
    }
  }
};

struct ColumnTotals {
  Output totals;
  const float* partial;  ///< of the kind, first piece
  std::int64_t pieces, stride;
  bool accumulate;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t column) const {
    Values<N> total{};
    if (accumulate) total = totals.load<N>(column);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      for (int k = 0; k < N; ++k) total.of[k] += partial[piece * stride + column + k];
    }
    totals.store(column, total);
  }
};

/// totals[kind] (+)= the sums. workspace: column_sum_bytes(width).
template <class Term>
void sum_columns(const Term& term, std::int64_t rows, std::int64_t width,
                 const Output (&totals)[Term::kinds], bool accumulate, void* workspace) {
  if (width <= 0) return;
  static_assert(Term::kinds <= most_sum_kinds);
  constexpr std::int64_t fewest_rows = 4 * most_warps;
  const std::int64_t share = divide_up(rows, most_row_pieces);
  const std::int64_t rows_per_piece = share < fewest_rows ? fewest_rows : share;
  const std::int64_t pieces = divide_up(rows, rows_per_piece);
  auto* partial = static_cast<float*>(workspace);
  if (pieces > 0) {
    launch({.blocks = divide_up(width, warp_size),
            .threads = most_warps * warp_size,
            .shared_bytes = sizeof(float) * Term::kinds * most_warps * warp_size,
            .pieces = pieces},
           ColumnPartials<Term>{term, partial, rows, rows_per_piece, width});
  }
  for (int kind = 0; kind < Term::kinds; ++kind) {
    for_elements_by<1>(width, ColumnTotals{totals[kind], partial + kind * width, pieces,
                                           Term::kinds * width, accumulate});
  }
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
