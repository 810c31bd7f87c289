#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

constexpr LogitsForm forms[] = {{}, {.multiplier = 0.125F}, {.multiplier = 2, .cap = 5}};

Values formed(const Values& logits, LogitsForm form) {
  Values values = logits;
  const auto cap = static_cast<double>(form.cap);
  for (double& value : values) {
    value *= static_cast<double>(form.multiplier);
    if (cap > 0) value = cap * std::tanh(value / cap);
  }
  return values;
}

double loss_of(const double* logits, std::int64_t vocabulary, std::int32_t target) {
  double largest = logits[0];
  for (std::int64_t i = 1; i < vocabulary; ++i) largest = std::max(largest, logits[i]);
  double sum = 0.0;
  for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(logits[i] - largest);
  return std::log(sum) + largest - logits[target];
}

class CrossEntropyTest : public KernelTest {};

TEST_P(CrossEntropyTest, GivesLossesAndFiniteDifferences) {
  for (const auto& [rows, form] :
       {std::pair{std::int64_t{1}, forms[0]}, {7, forms[0]}, {3, forms[1]}, {5, forms[2]}}) {
    for (const std::int64_t vocabulary : {3, 48, 257}) {
      const float scale = 0.25F;
      const Values logits = random_values(rows * vocabulary, 1, 6.0);
      const auto targets = random_tokens(rows, static_cast<std::int32_t>(vocabulary), 2);
      Buffer gradient = typed(logits);
      Buffer losses(DType::f32, rows);
      table().cross_entropy(type(), losses.floats(), gradient.data(), targets.data(), rows,
                            vocabulary, vocabulary, scale, form);
      Values expected_losses;
      Values expected;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int32_t target = targets[static_cast<std::size_t>(row)];
        const Values own(logits.begin() + row * vocabulary,
                         logits.begin() + (row + 1) * vocabulary);
        const auto loss = [&, form = form](const Values& v) {
          return loss_of(formed(v, form).data(), vocabulary, target);
        };
        expected_losses.push_back(loss(own));
        for (const double slope : numeric_gradient(loss, own)) expected.push_back(slope * scale);
      }
      expect_close(losses.values(), expected_losses, 1e-5, "losses");
      expect_close(gradient.values(), expected, tolerance(), "gradient");
    }
  }
}

TEST_P(CrossEntropyTest, LeavesWhatLiesBetweenRows) {
  for (const std::int64_t vocabulary : {5, 257}) {
    const std::int64_t rows = 3;
    const std::int64_t stride = vocabulary + 11;
    const Values logits = random_values(rows * stride, 1, 6.0);
    Values dense;
    for (std::int64_t i = 0; i < rows * stride; ++i)
      if (i % stride < vocabulary) dense.push_back(logits[static_cast<std::size_t>(i)]);
    const Tokens targets{2, -1, 4};
    Buffer expected = typed(dense);
    Buffer gradient = typed(logits);
    Buffer expected_losses(DType::f32, rows);
    Buffer losses(DType::f32, rows);
    table().cross_entropy(type(), expected_losses.floats(), expected.data(), targets.data(), rows,
                          vocabulary, vocabulary, 0.5F, {});
    table().cross_entropy(type(), losses.floats(), gradient.data(), targets.data(), rows,
                          vocabulary, stride, 0.5F, {});
    expect_close(losses.values(), expected_losses.values(), 1e-6, "losses");
    const Values before = typed(logits).values();
    const Values after = gradient.values();
    Values between;
    Values of_rows;
    for (std::int64_t i = 0; i < rows * stride; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (i % stride < vocabulary) {
        of_rows.push_back(after[at]);
      } else {
        EXPECT_EQ(after[at], before[at]) << i;
      }
    }
    expect_close(of_rows, expected.values(), tolerance(), "gradient");
  }
}

TEST_P(CrossEntropyTest, ARowWithoutATargetHasNeitherLossNorGradient) {
  const std::int64_t vocabulary = 35;
  const Tokens targets{-1, 3, -1};
  const Values logits = random_values(3 * vocabulary, 1, 6.0);
  Buffer gradient = typed(logits);
  Buffer losses(DType::f32, 3);
  table().cross_entropy(type(), losses.floats(), gradient.data(), targets.data(), 3, vocabulary,
                        vocabulary, 0.5F, {});
  Buffer alone = typed(Values(logits.begin() + vocabulary, logits.begin() + 2 * vocabulary));
  Buffer loss(DType::f32, 1);
  table().cross_entropy(type(), loss.floats(), alone.data(), &targets[1], 1, vocabulary, vocabulary,
                        0.5F, {});
  EXPECT_EQ(losses.values(), (Values{0.0, loss.values()[0], 0.0}));
  Values expected(logits.size());
  const Values of_row = alone.values();
  std::copy(of_row.begin(), of_row.end(), expected.begin() + vocabulary);
  EXPECT_EQ(gradient.values(), expected);
}

TEST_P(CrossEntropyTest, StandsLargeLogitsAndReportsNotANumber) {
  const Tokens targets{1};
  Buffer logits = typed({-60000.0, 50000.0, 49998.0});
  const Values rounded = logits.values();
  Buffer loss(DType::f32, 1);
  table().cross_entropy(type(), loss.floats(), logits.data(), targets.data(), 1, 3, 3, 1.0F, {});
  EXPECT_NEAR(loss.values()[0], loss_of(rounded.data(), 3, targets[0]), 1e-5);

  Values broken(40, 1.0);
  broken[17] = std::numeric_limits<double>::quiet_NaN();
  Buffer bad = typed(broken);
  table().cross_entropy(type(), loss.floats(), bad.data(), targets.data(), 1, 40, 40, 1.0F, {});
  EXPECT_TRUE(std::isnan(loss.values()[0]));
}

TEST_P(CrossEntropyTest, IsTheSameInAllWays) {
  const std::int64_t rows = 131;
  const std::int64_t vocabulary = 257;
  const auto targets = random_tokens(rows, vocabulary, 2);
  expect_same_in_all_ways([&] {
    std::vector<Buffer> results{Buffer(DType::f32, rows),
                                typed(random_values(rows * vocabulary, 1, 6.0))};
    table().cross_entropy(type(), results[0].floats(), results[1].data(), targets.data(), rows,
                          vocabulary, vocabulary, 1.0F, {});
    return results;
  });
}

DSTUNE_FOR_TABLES(CrossEntropyTest);

}  // namespace
}  // namespace dstune::kernels::test
