#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

/// The rows of a matrix that begin at multiples of `stride`.
Values rows_of(const Values& stored, std::int64_t columns, std::int64_t stride) {
  Values dense;
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (static_cast<std::int64_t>(i) % stride < columns) dense.push_back(stored[i]);
  return dense;
}

/// The product in double, of the values as they were rounded.
Values product(const MatmulShape& s, const Values& a, const Values& b, const Values& bias,
               const Values& before) {
  Values c(static_cast<std::size_t>(s.m * s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < s.n; ++j) {
      const auto at = static_cast<std::size_t>(i * s.n + j);
      double sum = s.accumulate ? before[at] : 0.0;
      if (s.has_bias) sum += bias[static_cast<std::size_t>(j)];
      for (std::int64_t k = 0; k < s.k; ++k) {
        sum += a[static_cast<std::size_t>(s.transpose_a ? k * s.m + i : i * s.k + k)] *
               b[static_cast<std::size_t>(s.transpose_b ? j * s.k + k : k * s.n + j)];
      }
      c[at] = sum;
    }
  }
  return c;
}

class MatmulTest : public KernelTest {
 protected:
  void check(const MatmulShape& shape) {
    const std::int64_t columns_of_a = shape.transpose_a ? shape.m : shape.k;
    const std::int64_t rows_of_a = shape.transpose_a ? shape.k : shape.m;
    const Values a = random_values(rows_of_a * shape.row_of_a(), 1);
    const Values b = random_values(shape.k * shape.n, 2);
    const Values bias = random_values(shape.n, 3);
    const Values before = random_values(shape.m * shape.row_of_c(), 4);
    const Buffer a_typed(shape.type, a);
    const Buffer b_typed(shape.type, b);
    const Buffer bias_typed(shape.type, bias);
    const bool is_dense = shape.row_of_c() == shape.n;
    Buffer c = shape.accumulate || !is_dense ? Buffer(shape.out_type, before)
                                             : Buffer(shape.out_type, shape.m * shape.n);
    Workspace workspace(table().matmul_workspace_bytes(shape));
    table().matmul(shape, a_typed.data(), b_typed.data(),
                   shape.has_bias ? bias_typed.data() : nullptr, c.data(), workspace.data());
    workspace.check();
    expect_close(
        rows_of(c.values(), shape.n, shape.row_of_c()),
        product(shape, rows_of(a, columns_of_a, shape.row_of_a()), b, bias,
                rows_of(before, shape.n, shape.row_of_c())),
        tolerance_of(shape.out_type),
        std::to_string(shape.m) + "×" + std::to_string(shape.n) + "×" + std::to_string(shape.k));
  }
};

TEST_P(MatmulTest, EqualsTheSumInDouble) {
  for (const std::int64_t m : {1, 7, 65}) {
    for (const std::int64_t n : {48, 257}) {
      for (int flags = 0; flags < 32; ++flags) {
        if (is_emulated() && (flags + m + n) % 3 != 0) continue;
        MatmulShape shape{.m = m, .n = n, .k = 33};
        shape.transpose_a = (flags & 1) != 0;
        shape.transpose_b = (flags & 2) != 0;
        shape.accumulate = (flags & 4) != 0;
        shape.has_bias = (flags & 8) != 0;
        shape.type = type();
        shape.out_type = (flags & 16) != 0 ? DType::f32 : type();
        check(shape);
      }
    }
  }
}

TEST_P(MatmulTest, RowsMayLieApart) {
  for (int flags = 0; flags < 16; ++flags) {
    if (is_emulated() && flags % 3 != 0) continue;
    MatmulShape shape{.m = 7, .n = 65, .k = 33};
    shape.transpose_a = (flags & 1) != 0;
    shape.transpose_b = (flags & 2) != 0;
    shape.accumulate = (flags & 4) != 0;
    shape.has_bias = (flags & 8) != 0;
    shape.type = shape.out_type = type();
    shape.stride_a = 40;
    shape.stride_c = 72;
    check(shape);
  }
}

TEST_P(MatmulTest, AddsUpLongSumsOnce) {
  for (const bool accumulate : {false, true}) {
    check({.m = 3,
           .n = 5,
           .k = 7001,
           .accumulate = accumulate,
           .has_bias = true,
           .type = type(),
           .out_type = DType::f32});
  }
}

// Long enough for several panels where 16-bit operands are converted a panel at a time.
TEST_P(MatmulTest, LongDimensionsMakeNoDifference) {
  if (is_emulated()) GTEST_SKIP() << "of no use without panels";
  run_in_way(2);
  const MatmulShape shapes[] = {
      {.m = 4500, .n = 97, .k = 33}, {.m = 33, .n = 4500, .k = 97}, {.m = 33, .n = 97, .k = 4500}};
  for (MatmulShape shape : shapes) {
    for (int flags = 0; flags < 8; ++flags) {
      shape.transpose_a = (flags & 1) != 0;
      shape.transpose_b = (flags & 2) != 0;
      shape.accumulate = shape.has_bias = (flags & 4) != 0;
      shape.type = shape.out_type = type();
      check(shape);
      if (flags % 5 != 1) continue;
      MatmulShape apart = shape;
      apart.stride_a = shape.row_of_a() + 3;
      apart.stride_c = shape.n + 7;
      check(apart);
    }
  }
}

TEST_P(MatmulTest, ServesAllWaysToRun) {
  for (const int way : {2, 1, 3}) {
    run_in_way(way);
    check({.m = 64, .n = 257, .k = 96, .transpose_b = true, .type = type(), .out_type = type()});
  }
}

DSTUNE_FOR_TABLES(MatmulTest);

}  // namespace
}  // namespace dstune::kernels::test
