// Embedding tables: rows gathered, and gradients scattered without a race or a second rounding.
#include "common/functions.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct Gathering {
  Output out;
  Input token_table, position_table, type_row;
  const std::int32_t* tokens;
  std::int64_t sequence, width;

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t token = tokens[row] * width;
    const std::int64_t position = row % sequence * width;
    for_row<N>(block, width, [&](std::int64_t i) {
      Values<N> sum = token_table.load<N>(token + i);
      if (position_table.data != nullptr) add(sum, position_table.load<N>(position + i));
      if (type_row.data != nullptr) add(sum, type_row.load<N>(i));
      out.store(row * width + i, sum);
    });
  }

 private:
  template <int N>
  static DSTUNE_DEVICE void add(Values<N>& sum, const Values<N>& term) {
    for (int k = 0; k < N; ++k) sum.of[k] += term.of[k];
  }
};

/// A block has one row of d_out and a piece of its columns. The first row of a token adds up all of
/// the token's rows in order, the blocks of the others have nothing to do.
struct Scattering {
  Output d_token_table;
  Input d_out;
  const std::int32_t* tokens;
  std::int64_t rows, width;
  bool accumulate;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index();
    const std::int32_t token = tokens[row];
    const std::int64_t column = block.piece() * block.threads() + block.thread();
    const bool has_column = column < width;
    const std::int64_t at = token * width + column;
    const Shared<std::uint32_t> found = block.shared<std::uint32_t>();
    float sum = accumulate && has_column ? d_token_table[at] : 0.0F;
    // As many tokens at a time as the block has threads: a thread looks at one of them, then all
    // threads know which are to be added.
    for (std::int64_t first = 0; first < rows; first += block.threads()) {
      const std::int64_t mine = first + block.thread();
      const std::uint32_t of_warp = block.ballot(mine < rows && tokens[mine] == token);
      block.sync();
      if (block.thread() % warp_size == 0) found[block.thread() / warp_size] = of_warp;
      block.sync();
      for (int warp = 0; warp < block.threads() / warp_size; ++warp) {
        const std::uint32_t lanes = found[warp];
        for (int lane = 0; lane < warp_size; ++lane) {
          if ((lanes >> lane & 1U) == 0) continue;
          const std::int64_t of_token = first + warp * warp_size + lane;
          if (of_token < row) return;
          if (has_column) sum += d_out[of_token * width + column];
        }
      }
    }
    if (has_column) d_token_table.set(at, sum);
  }
};

struct PositionSums {
  Output d_position_table;
  Input d_out;
  std::int64_t rows, sequence, width;
  bool accumulate;

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> sum{};
    if (accumulate) sum = d_position_table.load<N>(i);
    for (std::int64_t from = i; from < rows * width; from += sequence * width) {
      const Values<N> term = d_out.load<N>(from);
      for (int k = 0; k < N; ++k) sum.of[k] += term.of[k];
    }
    d_position_table.store(i, sum);
  }
};

}  // namespace

void embedding_forward(DType type, void* out, const void* token_table, const void* position_table,
                       const void* type_row, const std::int32_t* tokens, std::int64_t rows,
                       std::int64_t sequence, std::int64_t width) {
  const Gathering body{
      {out, type}, {token_table, type}, {position_table, type}, {type_row, type}, tokens, sequence,
      width};
  for_rows(rows, width, body, body.out, body.token_table, body.position_table, body.type_row);
}

void embedding_backward(DType type, void* d_token_table, void* d_position_table, const void* d_out,
                        const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                        std::int64_t width, std::int64_t vocabulary, bool accumulate_tokens,
                        bool accumulate_positions) {
  if (!accumulate_tokens)
    zero(d_token_table, static_cast<std::size_t>(vocabulary * width * size_of(type)));
  const Input from{d_out, type};
  if (rows > 0 && width > 0) {
    const std::int64_t threads =
        smaller_of(divide_up(width, warp_size) * warp_size, cuda::most_threads);
    launch({.blocks = rows,
            .threads = static_cast<int>(threads),
            .shared_bytes = most_warps * sizeof(std::uint32_t),
            .pieces = divide_up(width, threads)},
           Scattering{{d_token_table, type}, from, tokens, rows, width, accumulate_tokens});
  }
  if (d_position_table == nullptr) return;
  const PositionSums body{{d_position_table, type}, from, rows, sequence, width,
                          accumulate_positions};
  if (width % pack == 0) {
    for_elements(sequence * width, body, body.d_position_table, body.d_out);
  } else {
    for_elements_by<1>(sequence * width, body);
  }
}

}  // namespace dstune::kernels::DSTUNE_ISA
