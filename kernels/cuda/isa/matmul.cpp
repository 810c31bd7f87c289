// Matrix products in fp32 arithmetic and without tensor cores: what is used where the library is
// absent, or refuses.
#include "backend_parts.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// Of C a block has tile × tile elements, of which a thread has side × side; of A and B it keeps
/// `depth` terms at a time in shared memory.
struct MatrixProduct {
  static constexpr int tile = 64;
  static constexpr int depth = 16;
  static constexpr int threads_wide = 16;
  static constexpr int side = tile / threads_wide;
  static constexpr int stride = tile + 1;  // what is written by column lies in as many banks

  MatmulShape s;
  Input a, b, bias;
  Output c;
  std::int64_t row_of_a, row_of_b, row_of_c;  ///< elements from one to the next

  /// to[term][line], line a row of op(A) or a column of op(B). `by_line`: a line's terms lie side
  /// by side, and lines `stride` apart, else terms are.
  static DSTUNE_DEVICE void load(const Block& block, Shared<float> to, Input from, bool by_line,
                                 std::int64_t from_stride, std::int64_t first_line,
                                 std::int64_t lines, std::int64_t first_term, std::int64_t terms) {
    for (int i = block.thread(); i < tile * depth; i += block.threads()) {
      const int line = by_line ? i / depth : i % tile;
      const int term = by_line ? i % depth : i / tile;
      const std::int64_t l = first_line + line;
      const std::int64_t t = first_term + term;
      const bool exists = l < lines && t < terms;
      to[term * stride + line] =
          exists ? from[by_line ? l * from_stride + t : t * from_stride + l] : 0.0F;
    }
  }

  DSTUNE_DEVICE void operator()(const Block& block) const {
    const std::int64_t tiles_wide = divide_up(s.n, tile);
    const std::int64_t first_row = block.index() / tiles_wide * tile;
    const std::int64_t first_column = block.index() % tiles_wide * tile;
    const int x = block.thread() % threads_wide;
    const int y = block.thread() / threads_wide;
    const Shared<float> left = block.shared<float>();
    const Shared<float> right = block.shared<float>(sizeof(float) * depth * stride);
    float sums[side][side] = {};
    for (std::int64_t first = 0; first < s.k; first += depth) {
      block.sync();
      load(block, left, a, !s.transpose_a, row_of_a, first_row, s.m, first, s.k);
      load(block, right, b, s.transpose_b, row_of_b, first_column, s.n, first, s.k);
      block.sync();
      // Sums of sums: long ones lose less to rounding.
      float part[side][side] = {};
      for (int term = 0; term < depth; ++term) {
        float of_row[side];
        float of_column[side];
        for (int i = 0; i < side; ++i) {
          of_row[i] = left[term * stride + y + i * threads_wide];
          of_column[i] = right[term * stride + x + i * threads_wide];
        }
        for (int i = 0; i < side; ++i) {
          for (int j = 0; j < side; ++j)
            part[i][j] = multiply_add(of_row[i], of_column[j], part[i][j]);
        }
      }
      for (int i = 0; i < side; ++i) {
        for (int j = 0; j < side; ++j) sums[i][j] += part[i][j];
      }
    }
    DSTUNE_UNROLL
    for (int i = 0; i < side; ++i) {
      DSTUNE_UNROLL
      for (int j = 0; j < side; ++j) {
        const std::int64_t row = first_row + y + i * threads_wide;
        const std::int64_t column = first_column + x + j * threads_wide;
        if (row < s.m && column < s.n) {
          float value = sums[i][j];
          if (s.has_bias) value += bias[column];
          if (s.accumulate) value += c[row * row_of_c + column];
          c.set(row * row_of_c + column, value);
        }
      }
    }
  }
};

struct BiasAddition {
  Output c;
  Input bias;
  std::int64_t width, stride;

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    for_row<N>(block, width, [&](std::int64_t i) {
      Values<N> values = c.load<N>(row * stride + i);
      values += bias.load<N>(i);
      c.store(row * stride + i, values);
    });
  }
};

}  // namespace

void matmul(const MatmulShape& shape, const void* a, const void* b, const void* bias, void* c,
            void* /*workspace*/) {
  if (shape.m <= 0 || shape.n <= 0) return;
  using Product = MatrixProduct;
  launch({.blocks = divide_up(shape.m, Product::tile) * divide_up(shape.n, Product::tile),
          .threads = Product::threads_wide * Product::threads_wide,
          .shared_bytes = 2 * sizeof(float) * Product::depth * Product::stride},
         Product{shape,
                 {a, shape.type},
                 {b, shape.type},
                 {bias, shape.type},
                 {c, shape.out_type},
                 shape.row_of_a(),
                 shape.transpose_b ? shape.k : shape.n,
                 shape.row_of_c()});
}

std::size_t matmul_workspace_bytes(const MatmulShape& /*shape*/) {
  return 0;
}

void add_bias(const MatmulShape& shape, const void* bias, void* c) {
  const BiasAddition body{{c, shape.out_type}, {bias, shape.type}, shape.n, shape.row_of_c()};
  for_rows(shape.m, shape.n, body, are_rows_packed(shape.n, shape.row_of_c(), c, bias));
}

}  // namespace dstune::kernels::DSTUNE_ISA
