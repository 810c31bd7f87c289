#include <cmath>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

constexpr float epsilon = 1e-5F;

struct Size {
  std::int64_t rows, width;
};
const Size sizes[] = {{1, 48}, {7, 65}, {7, 5}, {37, 16}};
/// More than the threads of a block do at once. Rows of 2600 and 4096 are kept whole, of 4128 not.
const Size wide_sizes[] = {{2, 601}, {6, 2600}, {5, 4096}, {2, 4128}};

struct Statistics {
  double mean, rstd;
};

Statistics statistics(const Values& x, std::int64_t row, std::int64_t width, bool centred) {
  double mean = 0.0;
  double squares = 0.0;
  const double* values = x.data() + row * width;
  for (std::int64_t i = 0; centred && i < width; ++i) mean += values[i];
  mean /= static_cast<double>(width);
  for (std::int64_t i = 0; i < width; ++i) squares += (values[i] - mean) * (values[i] - mean);
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
}

/// LayerNorm where `bias` is not empty, else RMSNorm.
Values norm(const Values& x, const Values& weight, const Values& bias, Size size) {
  Values out;
  for (std::int64_t row = 0; row < size.rows; ++row) {
    const Statistics s = statistics(x, row, size.width, !bias.empty());
    for (std::int64_t i = 0; i < size.width; ++i) {
      const auto column = static_cast<std::size_t>(i);
      const double unit = (x[static_cast<std::size_t>(row * size.width + i)] - s.mean) * s.rstd;
      out.push_back(unit * weight[column] + (bias.empty() ? 0.0 : bias[column]));
    }
  }
  return out;
}

Values sum(const Values& a, const Values& b) {
  Values total = a;
  for (std::size_t i = 0; i < a.size(); ++i) total[i] += b[i];
  return total;
}

/// rstd·(g − mean(g) − unit·mean(g·unit)) with g = d_out·weight; mean(g) only where centred.
Values input_gradient(const Values& d_out, const Values& x, const Values& weight, Size size,
                      bool centred) {
  Values d_x;
  for (std::int64_t row = 0; row < size.rows; ++row) {
    const Statistics s = statistics(x, row, size.width, centred);
    const auto g = [&](std::int64_t i) {
      return d_out[static_cast<std::size_t>(row * size.width + i)] *
             weight[static_cast<std::size_t>(i)];
    };
    const auto unit = [&](std::int64_t i) {
      return (x[static_cast<std::size_t>(row * size.width + i)] - s.mean) * s.rstd;
    };
    double mean = 0.0;
    double product_mean = 0.0;
    for (std::int64_t i = 0; i < size.width; ++i) {
      if (centred) mean += g(i) / static_cast<double>(size.width);
      product_mean += g(i) * unit(i) / static_cast<double>(size.width);
    }
    for (std::int64_t i = 0; i < size.width; ++i)
      d_x.push_back(s.rstd * (g(i) - mean - unit(i) * product_mean));
  }
  return d_x;
}

class NormTest : public KernelTest {
 protected:
  void check_forward(Size size, bool centred) {
    const std::int64_t count = size.rows * size.width;
    const Values residual = random_values(count, 1, 3.0);
    const Values x = random_values(count, 2);
    const Values weight = random_values(size.width, 3);
    const Values bias = centred ? random_values(size.width, 4) : Values{};
    Buffer out = poisoned(count);
    Buffer residual_out = poisoned(count);
    Buffer mean(DType::f32, size.rows);
    Buffer rstd(DType::f32, size.rows);
    call_forward(out, residual_out, mean, rstd, typed(residual).data(), typed(x).data(),
                 typed(weight), typed(bias), size, centred);
    expect_close(residual_out.values(), sum(residual, x), tolerance(), "residual_out");
    check_statistics(residual_out.values(), mean, rstd, size, centred);
    expect_close(out.values(), norm(residual_out.values(), weight, bias, size), tolerance(), "out");

    Buffer again = poisoned(count);
    Buffer same = residual_out;
    call_forward(again, same, mean, rstd, same.data(), nullptr, typed(weight), typed(bias), size,
                 centred);
    EXPECT_TRUE(again == out);
    EXPECT_TRUE(same == residual_out);
  }

  void check_backward(Size size, bool centred, bool accumulate) {
    const std::int64_t count = size.rows * size.width;
    const Values x = random_values(count, 1, 3.0);
    const Values weight = random_values(size.width, 3);
    const Values bias = centred ? random_values(size.width, 4) : Values{};
    const Values d_out = random_values(count, 5);
    const Values d_x_before = random_values(count, 6);
    const Values d_before = random_values(size.width, 7);
    Buffer d_x = accumulate ? typed(d_x_before) : poisoned(count);
    Buffer d_weight = accumulate ? typed(d_before) : poisoned(size.width);
    Buffer d_bias = d_weight;
    call_backward(d_x, d_weight, d_bias, d_out, x, weight, size, centred, accumulate);

    const auto objective = [&](const Values& at_x, const Values& at_weight, const Values& at_bias) {
      return dot(norm(at_x, at_weight, at_bias, size), d_out);
    };
    const auto expect = [&](const Buffer& actual, Values expected, const Values& before,
                            const char* what) {
      if (accumulate) expected = sum(expected, before);
      expect_close(actual.values(), expected, tolerance(), what);
    };
    expect(d_x, numeric_gradient([&](const Values& v) { return objective(v, weight, bias); }, x),
           d_x_before, "d_x");
    expect(d_weight,
           numeric_gradient([&](const Values& v) { return objective(x, v, bias); }, weight),
           d_before, "d_weight");
    if (!centred) return;
    expect(d_bias, numeric_gradient([&](const Values& v) { return objective(x, weight, v); }, bias),
           d_before, "d_bias");
  }

  void call_backward(Buffer& d_x, Buffer& d_weight, Buffer& d_bias, const Values& d_out,
                     const Values& x, const Values& weight, Size size, bool centred,
                     bool accumulate) {
    Values means;
    Values rstds;
    for (std::int64_t row = 0; row < size.rows; ++row) {
      const Statistics s = statistics(x, row, size.width, centred);
      means.push_back(s.mean);
      rstds.push_back(s.rstd);
    }
    Buffer mean(DType::f32, means);
    Buffer rstd(DType::f32, rstds);
    Workspace workspace(table().norm_workspace_bytes(size.width));
    if (centred) {
      table().layernorm_backward(type(), d_x.data(), d_weight.data(), d_bias.data(),
                                 typed(d_out).data(), typed(x).data(), mean.floats(), rstd.floats(),
                                 typed(weight).data(), size.rows, size.width, accumulate,
                                 accumulate, workspace.data());
    } else {
      table().rmsnorm_backward(type(), d_x.data(), d_weight.data(), typed(d_out).data(),
                               typed(x).data(), rstd.floats(), typed(weight).data(), 0.0F,
                               size.rows, size.width, accumulate, accumulate, workspace.data());
    }
    workspace.check();
  }

 private:
  void call_forward(Buffer& out, Buffer& residual_out, Buffer& mean, Buffer& rstd,
                    const void* residual, const void* x, const Buffer& weight, const Buffer& bias,
                    Size size, bool centred) {
    if (centred) {
      table().layernorm_forward(type(), out.data(), residual_out.data(), mean.floats(),
                                rstd.floats(), residual, x, weight.data(), bias.data(), size.rows,
                                size.width, epsilon);
    } else {
      table().rmsnorm_forward(type(), out.data(), residual_out.data(), rstd.floats(), residual, x,
                              weight.data(), 0.0F, size.rows, size.width, epsilon);
    }
  }

  void check_statistics(const Values& x, const Buffer& mean, const Buffer& rstd, Size size,
                        bool centred) {
    Values means;
    Values rstds;
    for (std::int64_t row = 0; row < size.rows; ++row) {
      means.push_back(statistics(x, row, size.width, centred).mean);
      rstds.push_back(statistics(x, row, size.width, centred).rstd);
    }
    expect_close(rstd.values(), rstds, 1e-5, "rstd");
    if (centred) expect_close(mean.values(), means, 1e-5, "mean");
  }
};

TEST_P(NormTest, ForwardEqualsTheFormula) {
  for (const Size size : sizes) {
    check_forward(size, true);
    check_forward(size, false);
  }
}

TEST_P(NormTest, WideRowsEqualTheFormula) {
  for (const Size size : wide_sizes) {
    check_forward(size, true);
    check_forward(size, false);
    for (const bool centred : {false, true}) {
      const std::int64_t count = size.rows * size.width;
      const Values x = random_values(count, 1, 3.0);
      const Values weight = random_values(size.width, 3);
      const Values d_out = random_values(count, 5);
      Buffer d_x = poisoned(count);
      Buffer d_weight = poisoned(size.width);
      Buffer d_bias = d_weight;
      call_backward(d_x, d_weight, d_bias, d_out, x, weight, size, centred, false);
      expect_close(d_x.values(), input_gradient(d_out, x, weight, size, centred), tolerance(),
                   "d_x");
      Values products(weight.size());
      Values sums(weight.size());
      for (std::int64_t row = 0; row < size.rows; ++row) {
        const auto [mean, rstd] = statistics(x, row, size.width, centred);
        for (std::size_t i = 0; i < weight.size(); ++i) {
          const std::size_t at = static_cast<std::size_t>(row) * weight.size() + i;
          products[i] += d_out[at] * (x[at] - mean) * rstd;
          sums[i] += d_out[at];
        }
      }
      expect_close(d_weight.values(), products, tolerance(), "d_weight");
      if (centred) expect_close(d_bias.values(), sums, tolerance(), "d_bias");
    }
  }
}

TEST_P(NormTest, BackwardEqualsFiniteDifferences) {
  for (const Size size : sizes) {
    for (const bool accumulate : {false, true}) {
      check_backward(size, true, accumulate);
      check_backward(size, false, accumulate);
    }
  }
}

TEST_P(NormTest, AnOffsetIsAddedToTheWeights) {
  // So few bits that the sums are exact in every type.
  for (const Size size : {Size{7, 65}, Size{3, 512}}) {
    Values weight;
    for (std::int64_t i = 0; i < size.width; ++i)
      weight.push_back(0.25 * static_cast<double>(i % 5) - 0.5);
    Values whole = weight;
    for (double& value : whole) value += 1;
    const std::int64_t count = size.rows * size.width;
    const Buffer x = typed(random_values(count, 1, 3.0));
    const Buffer d_out = typed(random_values(count, 2));
    const auto run = [&](const Values& of, float offset) {
      const Buffer weights = typed(of);
      std::vector<Buffer> results{poisoned(count), poisoned(count), poisoned(size.width)};
      Buffer same = x;
      Buffer rstd(DType::f32, size.rows);
      Workspace workspace(table().norm_workspace_bytes(size.width));
      table().rmsnorm_forward(type(), results[0].data(), same.data(), rstd.floats(), same.data(),
                              nullptr, weights.data(), offset, size.rows, size.width, epsilon);
      table().rmsnorm_backward(type(), results[1].data(), results[2].data(), d_out.data(), x.data(),
                               rstd.floats(), weights.data(), offset, size.rows, size.width, false,
                               false, workspace.data());
      return results;
    };
    EXPECT_TRUE(run(weight, 1.0F) == run(whole, 0.0F));
  }
}

TEST_P(NormTest, BackwardIsTheSameInAllWays) {
  const Size size{1027, 65};
  const std::int64_t count = size.rows * size.width;
  expect_same_in_all_ways([&] {
    std::vector<Buffer> results{poisoned(count), poisoned(size.width), poisoned(size.width)};
    call_backward(results[0], results[1], results[2], random_values(count, 1),
                  random_values(count, 2), random_values(size.width, 3), size, true, false);
    return results;
  });
}

TEST_P(NormTest, BiasGradientIsTheColumnSum) {
  struct Shape : Size {
    std::int64_t apart;  ///< elements between rows
  };
  for (const Shape size : {Shape{{1, 48}, 0}, Shape{{7, 65}, 0}, Shape{{1027, 257}, 0},
                           Shape{{70, 65}, 3}, Shape{{70, 60}, 4}}) {
    const std::int64_t stride = size.width + size.apart;
    const Values d_out = random_values(size.rows * stride, 1);
    const Values before = random_values(size.width, 2);
    const auto run = [&](bool accumulate) {
      Buffer d_bias = accumulate ? typed(before) : poisoned(size.width);
      Workspace workspace(table().norm_workspace_bytes(size.width));
      table().bias_backward(type(), d_bias.data(), typed(d_out).data(), size.rows, size.width,
                            stride, accumulate, workspace.data());
      workspace.check();
      return d_bias;
    };
    Values expected(static_cast<std::size_t>(size.width));
    for (std::size_t i = 0; i < d_out.size(); ++i) {
      const std::size_t column = i % static_cast<std::size_t>(stride);
      if (column < expected.size()) expected[column] += d_out[i];
    }
    expect_close(run(false).values(), expected, tolerance(), "overwritten");
    expect_close(run(true).values(), sum(expected, before), tolerance(), "accumulated");
    expect_same_in_all_ways([&] { return run(false); });
  }
}

DSTUNE_FOR_TABLES(NormTest);

}  // namespace
}  // namespace dstune::kernels::test
