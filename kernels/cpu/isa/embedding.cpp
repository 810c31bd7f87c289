// Embedding tables: rows gathered, and gradients scattered without a race or a second rounding.
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// The first row of [begin, end) whose token is `token`; end where there is none.
std::int64_t find_token(const std::int32_t* tokens, std::int64_t begin, std::int64_t end,
                        std::int32_t token) {
  const Integers wanted = splat(token);
  std::int64_t row = begin;
  for (; row + lanes <= end; row += lanes) {
    Integers found;
    __builtin_memcpy(&found, tokens + row, sizeof(found));
    const Integers equal = found == wanted;
    std::int32_t any = 0;
    for (int lane = 0; lane < static_cast<int>(lanes); ++lane) any |= equal[lane];
    if (any != 0) break;
  }
  while (row < end && tokens[row] != token) ++row;
  return row;
}

/// Adds rows first, next(first), … to `target` in fp32, rounding once; a vector column at a time.
template <class T, class Next>
void sum_rows(T* target, const T* d_out, std::int64_t first, std::int64_t rows, std::int64_t width,
              bool accumulate, Next next) {
  // So many columns stay in registers, so that the rows are looked up seldom.
  constexpr std::int64_t vectors = 8;
  std::int64_t column = 0;
  for (; column + vectors * lanes <= width; column += vectors * lanes) {
    Vector sums[vectors];
    for (std::int64_t i = 0; i < vectors; ++i) {
      sums[i] = accumulate ? load(target + column + i * lanes, Full{}) : Vector{};
    }
    for (std::int64_t row = first; row < rows; row = next(row)) {
      const T* from = d_out + row * width + column;
      for (std::int64_t i = 0; i < vectors; ++i) sums[i] += load(from + i * lanes, Full{});
    }
    for (std::int64_t i = 0; i < vectors; ++i) {
      store(target + column + i * lanes, sums[i], Full{});
    }
  }
  for_vectors(column, width, [&](std::int64_t i, auto extent) {
    Vector sum = accumulate ? load(target + i, extent) : Vector{};
    for (std::int64_t row = first; row < rows; row = next(row)) {
      sum += load(d_out + row * width + i, extent);
    }
    store(target + i, sum, extent);
  });
}

}  // namespace

void embedding_forward(DType type, void* out, const void* token_table, const void* position_table,
                       const void* type_row, const std::int32_t* tokens, std::int64_t rows,
                       std::int64_t sequence, std::int64_t width) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const T* positions = static_cast<const T*>(position_table);
    const T* of_type = static_cast<const T*>(type_row);
    for_items(rows, width, [&](std::int64_t row) {
      T* to = static_cast<T*>(out) + row * width;
      const T* token = static_cast<const T*>(token_table) + tokens[row] * width;
      const T* position = positions == nullptr ? nullptr : positions + row % sequence * width;
      for_vectors(0, width, [&](std::int64_t i, auto extent) {
        Vector sum = load(token + i, extent);
        if (position != nullptr) sum += load(position + i, extent);
        if (of_type != nullptr) sum += load(of_type + i, extent);
        store(to + i, sum, extent);
      });
    });
  });
}

void embedding_backward(DType type, void* d_token_table, void* d_position_table, const void* d_out,
                        const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                        std::int64_t width, std::int64_t vocabulary, bool accumulate_tokens,
                        bool accumulate_positions) {
  with_type(type, [&](auto tag) {
    using T = decltype(tag);
    const T* d_rows = static_cast<const T*>(d_out);
    if (!accumulate_tokens) {
      zero(d_token_table, sizeof(T) * static_cast<std::size_t>(vocabulary * width));
    }
    // The first row of a token adds up all of its rows; the others have nothing to do.
    for_items(rows, width, [&](std::int64_t row) {
      const std::int32_t token = tokens[row];
      if (find_token(tokens, 0, row, token) < row) return;
      sum_rows(static_cast<T*>(d_token_table) + token * width, d_rows, row, rows, width,
               accumulate_tokens, [&](std::int64_t previous) {
                 return find_token(tokens, previous + 1, rows, token);
               });
    });
    if (d_position_table == nullptr) return;
    for_items(sequence, width, [&](std::int64_t position) {
      sum_rows(static_cast<T*>(d_position_table) + position * width, d_rows, position, rows, width,
               accumulate_positions, [&](std::int64_t previous) { return previous + sequence; });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
