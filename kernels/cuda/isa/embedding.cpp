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

  DSTUNE_DEVICE DType type() const { return out.type; }
  DSTUNE_DEVICE void assume(DType all) {
    out.type = token_table.type = position_table.type = type_row.type = all;
  }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t token = tokens[row] * width;
    const std::int64_t position = row % sequence * width;
    for_row<N>(block, width, [&](std::int64_t i) {
      Values<N> sum = token_table.load<N>(token + i);
      if (position_table.data != nullptr) sum += position_table.load<N>(position + i);
      if (type_row.data != nullptr) sum += type_row.load<N>(i);
      out.store(row * width + i, sum);
    });
  }
};

DSTUNE_FUNCTION int count_of(std::uint32_t bits) {
  int count = 0;
  for (; bits != 0; bits &= bits - 1) ++count;
  return count;
}
DSTUNE_FUNCTION int lowest_of(std::uint32_t bits) {
  int number = 0;
  while ((bits >> number & 1U) == 0) ++number;
  return number;
}

/// A block has a range of the vocabulary. It lists, in order, the rows with such tokens, and for
/// each token a warp adds up its rows. If the list is too short, it does half of the range at a
/// time; at last a single token, whose rows all warps look up as they add them.
struct Scattering {
  static constexpr int min_blocks = 4;
  static constexpr int max_listed = 2048;
  static constexpr int rows_of_thread = 4;
  static constexpr std::size_t shared_bytes = sizeof(std::int32_t) * (2 * max_listed + max_warps);

  Output d_token_table;
  Input d_out;
  const std::int32_t* tokens;
  std::int64_t rows, width, vocabulary, tokens_of_block;
  bool accumulate;

  /// Rows with tokens from `begin` to `end` − 1: the first max_listed of them in the list. More
  /// than that: there are more.
  DSTUNE_DEVICE int list(const Block& block, std::int64_t begin, std::int64_t end) const {
    const Shared<std::int32_t> listed_rows = block.shared<std::int32_t>();
    const Shared<std::int32_t> listed_tokens =
        block.shared<std::int32_t>(sizeof(std::int32_t) * max_listed);
    const Shared<std::int32_t> counts =
        block.shared<std::int32_t>(sizeof(std::int32_t) * 2 * max_listed);
    const int warp = block.thread() / warp_size;
    const int lane = block.thread() % warp_size;
    int total = 0;
    for (std::int64_t first = 0; first < rows && total <= max_listed;
         first += std::int64_t{rows_of_thread} * block.threads()) {
      const std::int64_t first_of_warp = first + warp * rows_of_thread * warp_size + lane;
      std::int32_t token[rows_of_thread];
      std::uint32_t found[rows_of_thread];
      int of_warp = 0;
      for (int i = 0; i < rows_of_thread; ++i) {
        const std::int64_t row = first_of_warp + i * warp_size;
        token[i] = row < rows ? tokens[row] : -1;
        found[i] = block.ballot(token[i] >= begin && token[i] < end);
        of_warp += count_of(found[i]);
      }
      block.sync();
      if (lane == 0) counts[warp] = of_warp;
      block.sync();
      int place = total;
      for (int other = 0; other < max_warps; ++other) {
        const int count = counts[other];
        if (other < warp) place += count;
        total += count;
      }
      for (int i = 0; i < rows_of_thread; ++i) {
        const int mine = place + count_of(found[i] & ((1U << lane) - 1U));
        if ((found[i] >> lane & 1U) != 0 && mine < max_listed) {
          listed_rows[mine] = static_cast<std::int32_t>(first_of_warp + i * warp_size);
          listed_tokens[mine] = token[i];
        }
        place += count_of(found[i]);
      }
    }
    block.sync();
    return total;
  }

  /// For the columns of a warp: each_row(add_row) calls add_row for the token's rows in order.
  template <int N, class EachRow>
  DSTUNE_DEVICE void sum_rows(std::int64_t token, std::int64_t column, EachRow each_row) const {
    const bool has_column = column < width;
    Values<N> sum{};
    if (accumulate && has_column) sum = d_token_table.load<N>(token * width + column);
    each_row([&](std::int64_t row) {
      if (has_column) sum += d_out.load<N>(row * width + column);
    });
    if (has_column) d_token_table.store(token * width + column, sum);
  }

  /// The rows of each listed token, from its first entry on.
  template <int N>
  DSTUNE_DEVICE void sum_listed(const Block& block, int listed) const {
    const Shared<std::int32_t> listed_rows = block.shared<std::int32_t>();
    const Shared<std::int32_t> listed_tokens =
        block.shared<std::int32_t>(sizeof(std::int32_t) * max_listed);
    const int lane = block.thread() % warp_size;
    for (int entry = block.thread() / warp_size; entry < listed; entry += max_warps) {
      const std::int32_t token = listed_tokens[entry];
      const auto same = [&](int first, int begin, int end) {
        const int other = first + lane;
        return block.ballot(other >= begin && other < end && listed_tokens[other] == token);
      };
      bool is_first = true;
      for (int first = 0; first < entry && is_first; first += warp_size)
        is_first = same(first, 0, entry) == 0;
      if (!is_first) continue;
      for (std::int64_t column = 0; column < width; column += warp_size * N) {
        sum_rows<N>(token, column + lane * N, [&](auto add_row) {
          for (int first = entry / warp_size * warp_size; first < listed; first += warp_size) {
            for (std::uint32_t left = same(first, entry, listed); left != 0; left &= left - 1)
              add_row(listed_rows[first + lowest_of(left)]);
          }
        });
      }
    }
  }

  template <int N>
  DSTUNE_DEVICE void sum_all_of(const Block& block, std::int64_t token) const {
    const int lane = block.thread() % warp_size;
    for (std::int64_t column = block.thread() / warp_size * warp_size * N; column < width;
         column += max_warps * warp_size * N) {
      sum_rows<N>(token, column + lane * N, [&](auto add_row) {
        for (std::int64_t first = 0; first < rows; first += warp_size) {
          const std::int64_t mine = first + lane;
          for (std::uint32_t left = block.ballot(mine < rows && tokens[mine] == token); left != 0;
               left &= left - 1)
            add_row(first + lowest_of(left));
        }
      });
    }
  }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t range) const {
    std::int64_t begin = range * tokens_of_block;
    const std::int64_t last = begin + tokens_of_block;
    const std::int64_t end_of_block = last < vocabulary ? last : vocabulary;
    while (begin < end_of_block) {
      std::int64_t end = end_of_block;
      int listed = list(block, begin, end);
      while (listed > max_listed && end > begin + 1) {
        end = begin + (end - begin) / 2;
        listed = list(block, begin, end);
      }
      if (listed > max_listed) {
        sum_all_of<N>(block, begin);
      } else {
        sum_listed<N>(block, listed);
      }
      block.sync();
      begin = end;
    }
  }
};

struct PositionSums {
  static constexpr int min_blocks = 4;
  Output d_position_table;
  Input d_out;
  std::int64_t rows, sequence, width;
  bool accumulate;

  DSTUNE_DEVICE DType type() const { return d_out.type; }
  DSTUNE_DEVICE void assume(DType all) { d_position_table.type = d_out.type = all; }

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> sum{};
    if (accumulate) sum = d_position_table.load<N>(i);
    for (std::int64_t from = i; from < rows * width; from += sequence * width)
      sum += d_out.load<N>(from);
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
  for_rows(rows, width, body,
           are_rows_packed(width, width, out, token_table, position_table, type_row));
}

void embedding_backward(DType type, void* d_token_table, void* d_position_table, const void* d_out,
                        const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                        std::int64_t width, std::int64_t vocabulary, bool accumulate_tokens,
                        bool accumulate_positions) {
  if (!accumulate_tokens)
    zero(d_token_table, static_cast<std::size_t>(vocabulary * width * size_of(type)));
  const Input from{d_out, type};
  if (rows > 0 && width > 0) {
    // A block reads all tokens once: enough blocks for every GPU, and lists of some dozens of rows.
    constexpr std::int64_t max_blocks = 1024;
    const std::int64_t tokens_of_block = divide_up(vocabulary, max_blocks);
    const Scattering body{
        {d_token_table, type}, from, tokens, rows, width, vocabulary, tokens_of_block,
        accumulate_tokens};
    const cuda::Grid grid{.blocks = divide_up(vocabulary, tokens_of_block),
                          .threads = max_warps * warp_size,
                          .shared_bytes = Scattering::shared_bytes};
    with_packs(are_rows_packed(width, width, d_token_table, d_out),
               [&](auto n) { launch(grid, EachRow<n, Scattering>{body}); });
  }
  if (d_position_table == nullptr) return;
  const PositionSums body{{d_position_table, type}, from, rows, sequence, width,
                          accumulate_positions};
  for_elements(sequence * width, body, are_rows_packed(width, width, d_position_table, d_out));
}

}  // namespace dstune::kernels::DSTUNE_ISA
