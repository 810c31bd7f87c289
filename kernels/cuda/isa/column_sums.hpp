#pragma once
/// Sums over rows, for each column: partial sums over pieces of rows fixed by the shape, combined
/// in order.

#include <cstddef>

#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

constexpr int max_sum_kinds = 2;
/// Columns that a block's warps add up side by side where the addresses allow it.
constexpr std::int64_t columns_of_block = std::int64_t{warp_size} * pack;

/// Pieces that the rows are cut into at most: enough blocks for a large GPU, unless so many would
/// make more of the partial sums than of the rows.
inline std::int64_t max_row_pieces(std::int64_t width) {
  constexpr std::int64_t enough_blocks = 1024;
  constexpr std::int64_t fewest = 32;
  constexpr std::int64_t most = 128;
  const std::int64_t wanted = divide_up(enough_blocks, divide_up(width, columns_of_block));
  return wanted < fewest ? fewest : wanted > most ? most : wanted;
}

inline std::size_t column_sum_bytes(std::int64_t width) {
  return sizeof(float) * static_cast<std::size_t>(max_row_pieces(width) * max_sum_kinds * width);
}

/// Term::kinds sums for each column: Term::add<N>(row, column, sums) adds a row's terms of N
/// columns, of Term::rows_together rows at once. A warp has 32·N columns side by side, a block's
/// warps share its rows.
template <int N, class Term>
struct ColumnPartials {
  static constexpr int min_blocks = cuda::min_blocks_of<Term>();
  static constexpr int columns = warp_size * N;
  static constexpr std::size_t shared_bytes =
      sizeof(float) * std::size_t{Term::kinds} * max_warps * columns;

  Term term;
  float* partial;  ///< [piece][kind][column]
  std::int64_t rows, rows_per_piece, width;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    with_known_types(term, [&](const Term& known) { add_up(block, known); });
  }

 private:
  DSTUNE_DEVICE void add_up(const Block& block, const Term& known) const {
    const int lane = block.thread() % warp_size;
    const int warp = block.thread() / warp_size;
    const std::int64_t column = block.index() * columns + lane * N;
    const std::int64_t begin = block.piece() * rows_per_piece;
    const std::int64_t end = begin + rows_per_piece < rows ? begin + rows_per_piece : rows;
    Values<N> sums[Term::kinds] = {};
    // Several rows without a branch between them, so that all are asked for at once.
    constexpr int together = Term::rows_together;
    std::int64_t row = column < width ? begin + warp : end;
    for (; row + (together - 1) * max_warps < end; row += together * max_warps) {
      DSTUNE_UNROLL
      for (int j = 0; j < together; ++j) known.template add<N>(row + j * max_warps, column, sums);
    }
    for (; row < end; row += max_warps) known.template add<N>(row, column, sums);
    const Shared<float> of_warps = block.shared<float>();
    for (int kind = 0; kind < Term::kinds; ++kind) {
      for (int k = 0; k < N; ++k)
        of_warps[((kind * max_warps + warp) * N + k) * warp_size + lane] = sums[kind].of[k];
    }
    block.sync();
    if (warp > 0 || column >= width) return;
    for (int kind = 0; kind < Term::kinds; ++kind) {
      for (int k = 0; k < N; ++k) {
        float sum = 0.0F;
        for (int other = 0; other < max_warps; ++other)
          sum += of_warps[((kind * max_warps + other) * N + k) * warp_size + lane];
        partial[(block.piece() * Term::kinds + kind) * width + column + k] = sum;
      }
    }
  }
};

/// A block's warps have a share each of the pieces, for 32 columns side by side; a piece of the
/// launch is a kind.
template <int Kinds>
struct ColumnTotals {
  static constexpr std::size_t shared_bytes = sizeof(float) * max_warps * warp_size;

  Output totals[Kinds];
  const float* partial;
  std::int64_t pieces, width;
  bool accumulate;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const int lane = block.thread() % warp_size;
    const int warp = block.thread() / warp_size;
    const std::int64_t column = block.index() * warp_size + lane;
    const std::int64_t share = divide_up(pieces, max_warps);
    const std::int64_t begin = warp * share;
    const std::int64_t end = begin + share < pieces ? begin + share : pieces;
    float sum = 0.0F;
    for (std::int64_t piece = begin; column < width && piece < end; ++piece)
      sum += partial[(piece * Kinds + block.piece()) * width + column];
    const Shared<float> of_warps = block.shared<float>();
    of_warps[warp * warp_size + lane] = sum;
    block.sync();
    if (warp > 0 || column >= width) return;
    const Output to = block.piece() == 0 ? totals[0] : totals[Kinds - 1];
    float total = accumulate ? to[column] : 0.0F;
    for (int other = 0; other < max_warps; ++other) total += of_warps[other * warp_size + lane];
    to.set(column, total);
  }
};

/// totals[kind] (+)= the partial sums [piece][kind][width].
template <std::size_t kinds>
void add_pieces(const Output (&totals)[kinds], const float* partial, std::int64_t pieces,
                std::int64_t width, bool accumulate) {
  using Totals = ColumnTotals<static_cast<int>(kinds)>;
  Totals all{{}, partial, pieces, width, accumulate};
  for (std::size_t kind = 0; kind < kinds; ++kind) all.totals[kind] = totals[kind];
  launch({.blocks = divide_up(width, warp_size),
          .threads = max_warps * warp_size,
          .shared_bytes = Totals::shared_bytes,
          .pieces = static_cast<std::int64_t>(kinds)},
         all);
}

/// totals[kind] (+)= the sums over the terms, in packs of columns where that is allowed.
/// workspace: column_sum_bytes(width).
template <class Term>
void sum_columns(const Term& term, std::int64_t rows, std::int64_t width,
                 const Output (&totals)[Term::kinds], bool accumulate, void* workspace,
                 bool packed) {
  if (width <= 0) return;
  static_assert(Term::kinds <= max_sum_kinds);
  constexpr std::int64_t min_rows = 4 * max_warps;
  const std::int64_t share = divide_up(rows, max_row_pieces(width));
  const std::int64_t rows_per_piece = share < min_rows ? min_rows : share;
  const std::int64_t pieces = divide_up(rows, rows_per_piece);
  auto* partial = static_cast<float*>(workspace);
  with_packs(packed, [&](auto n) {
    using Partials = ColumnPartials<n, Term>;
    if (pieces <= 0) return;
    launch({.blocks = divide_up(width, Partials::columns),
            .threads = max_warps * warp_size,
            .shared_bytes = Partials::shared_bytes,
            .pieces = pieces},
           Partials{term, partial, rows, rows_per_piece, width});
  });
  add_pieces(totals, partial, pieces, width, accumulate);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
