#include <algorithm>

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

/// The product in double, of the values as they were rounded. Each sum is in the order of k.
Values product(const MatmulShape& s, const Values& a, const Values& b, const Values& bias,
               const Values& before) {
  const auto m = static_cast<std::size_t>(s.m), n = static_cast<std::size_t>(s.n),
             depth = static_cast<std::size_t>(s.k);
  Values b_rows = b;
  if (s.transpose_b) {
    for (std::size_t k = 0; k < depth; ++k)
      for (std::size_t j = 0; j < n; ++j) b_rows[k * n + j] = b[j * depth + k];
  }
  Values c(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    double* const row = c.data() + i * n;
    for (std::size_t j = 0; j < n; ++j)
      row[j] = (s.accumulate ? before[i * n + j] : 0.0) + (s.has_bias ? bias[j] : 0.0);
    for (std::size_t k = 0; k < depth; ++k) {
      const double factor = a[s.transpose_a ? k * m + i : i * depth + k];
      const double* const b_row = b_rows.data() + k * n;
      for (std::size_t j = 0; j < n; ++j) row[j] += factor * b_row[j];
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

  /// Rows of a and c lie apart; bits 0 and 1 of `flags` transpose a and b.
  void check_apart(MatmulShape shape, int flags) {
    shape.transpose_a = (flags & 1) != 0;
    shape.transpose_b = (flags & 2) != 0;
    shape.type = shape.out_type = type();
    shape.stride_a = 40;
    shape.stride_c = 72;
    check(shape);
  }

  /// Forward, and backward where there is no bias.
  void check_activation(const MatmulShape& shape, Activation activation) {
    const std::int64_t count = shape.m * shape.n;
    const Values a = random_values(shape.m * shape.k, 1);
    const Values b = random_values(shape.k * shape.n, 2);
    const Values bias = random_values(shape.n, 3);
    const Values x = random_values(count, 4, 3.0);
    Values c = product(shape, a, b, bias, {});
    Values activated;
    for (const double value : c) activated.push_back(activation_value(activation, value));
    const std::string what = "width " + std::to_string(shape.n);
    Workspace workspace(table().matmul_workspace_bytes(shape));
    Buffer c_typed = poisoned(count);
    Buffer activated_typed = poisoned(count);
    table().matmul_activation_forward(shape, activation, typed(a).data(), typed(b).data(),
                                      shape.has_bias ? typed(bias).data() : nullptr, c_typed.data(),
                                      activated_typed.data(), workspace.data());
    expect_close(c_typed.values(), c, tolerance(), "c, " + what);
    expect_close(activated_typed.values(), activated, tolerance(), "activated, " + what);
    if (shape.has_bias) return;
    for (std::size_t i = 0; i < c.size(); ++i) c[i] *= activation_slope(activation, x[i]);
    Buffer d_x = poisoned(count);
    table().matmul_activation_backward(shape, activation, typed(a).data(), typed(b).data(),
                                       typed(x).data(), d_x.data(), workspace.data());
    workspace.check();
    expect_close(d_x.values(), c, tolerance(), "times the slope, " + what);
  }

  /// The gradients of weights and of a bias, which gets the sums of `offset` and a random number.
  void check_bias_gradient(const MatmulShape& shape, double offset) {
    Values a = random_values(shape.k * shape.row_of_a(), 1);
    for (double& value : a) value += offset;
    const Values b = random_values(shape.k * shape.n, 2);
    const Values c_before = random_values(shape.m * shape.n, 3);
    const Values before = random_values(shape.m, 4);
    const Buffer a_typed = typed(a);
    const Values rounded = rows_of(a_typed.values(), shape.m, shape.row_of_a());
    Values sums = shape.accumulate ? before : Values(before.size());
    for (std::size_t i = 0; i < rounded.size(); ++i) sums[i % sums.size()] += rounded[i];
    Buffer c = shape.accumulate ? typed(c_before) : poisoned(shape.m * shape.n);
    Buffer d_bias = shape.accumulate ? typed(before) : poisoned(shape.m);
    Workspace workspace(
        std::max(table().matmul_workspace_bytes(shape), table().norm_workspace_bytes(shape.m)));
    table().matmul_bias_backward(shape, a_typed.data(), typed(b).data(), c.data(), d_bias.data(),
                                 workspace.data());
    workspace.check();
    const std::string what = std::to_string(shape.m) + " columns, " + std::to_string(shape.k);
    expect_close(c.values(), product(shape, rounded, b, {}, c_before), tolerance(), "c, " + what);
    expect_close(d_bias.values(), sums, tolerance(), "the bias's gradient, " + what);
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
        if (shape.accumulate && shape.has_bias) continue;
        shape.type = type();
        shape.out_type = (flags & 16) != 0 ? DType::f32 : type();
        check(shape);
      }
    }
  }
}

TEST_P(MatmulTest, IsActivatedAndMultipliedByTheSlope) {
  for (const Activation activation : {Activation::gelu_tanh, Activation::relu}) {
    // In whole packs of 8 columns and not.
    for (const std::int64_t n : {48, 37}) {
      for (const bool has_bias : {false, true}) {
        check_activation({.m = 21,
                          .n = n,
                          .k = 33,
                          .transpose_b = has_bias,
                          .has_bias = has_bias,
                          .type = type(),
                          .out_type = type()},
                         activation);
      }
    }
  }
}

TEST_P(MatmulTest, GivesTheGradientOfABiasBesideThatOfWeights) {
  for (const bool accumulate : {false, true}) {
    for (const std::int64_t stride_a : {0, 72}) {
      for (const std::int64_t m : {1, 48, 65}) {
        check_bias_gradient({.m = m,
                             .n = 33,
                             .k = 70,
                             .transpose_a = true,
                             .accumulate = accumulate,
                             .type = type(),
                             .out_type = type(),
                             .stride_a = stride_a},
                            0.0);
      }
    }
  }
  // In 16 bits such sums would come to a halt on the way.
  const std::int64_t rows = is_emulated() ? 600 : 4001;
  check_bias_gradient(
      {.m = 16, .n = 8, .k = rows, .transpose_a = true, .type = type(), .out_type = type()}, 2.0);
}

TEST_P(MatmulTest, RowsMayLieApart) {
  for (int flags = 0; flags < 16; ++flags) {
    if (is_emulated() && flags % 3 != 0) continue;
    MatmulShape shape{.m = 7, .n = 65, .k = 33};
    shape.accumulate = (flags & 4) != 0;
    shape.has_bias = (flags & 8) != 0;
    if (shape.accumulate && shape.has_bias) continue;
    check_apart(shape, flags);
  }
}

TEST_P(MatmulTest, ASingleRowOrColumnMayLieApart) {
  for (int flags = 0; flags < 4; ++flags) {
    for (const MatmulShape& shape : {MatmulShape{.m = 1, .n = 65, .k = 33},
                                     {.m = 7, .n = 1, .k = 33},
                                     {.m = 7, .n = 65, .k = 1},
                                     {.m = 1, .n = 1, .k = 33}}) {
      check_apart(shape, flags);
    }
  }
}

TEST_P(MatmulTest, AddsUpLongSumsOnce) {
  for (const bool accumulate : {false, true}) {
    check({.m = 3,
           .n = 5,
           .k = 7001,
           .accumulate = accumulate,
           .has_bias = !accumulate,
           .type = type(),
           .out_type = DType::f32});
    for (const bool is_row : {false, true})
      check({.m = is_row ? 1 : 3,
             .n = is_row ? 5 : 1,
             .k = 7001,
             .accumulate = accumulate,
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
      shape.accumulate = (flags & 4) != 0;
      shape.has_bias = !shape.accumulate;
      shape.type = shape.out_type = type();
      check(shape);
      if (flags % 5 != 1) continue;
      MatmulShape apart = shape;
      apart.stride_a = shape.row_of_a() + 3;
      check(apart);
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
