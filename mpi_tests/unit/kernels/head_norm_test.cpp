#include <cmath>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

constexpr float epsilon = 1e-5F;

const AttentionShape shapes[] = {
    {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_size = 8},
    {.batch = 2, .sequence = 3, .heads = 4, .kv_heads = 2, .head_size = 5},
    {.batch = 1, .sequence = 19, .heads = 2, .kv_heads = 1, .head_size = 33},
};

std::int64_t rows(const AttentionShape& s) {
  return s.batch * s.sequence;
}
std::int64_t qkv_count(const AttentionShape& s) {
  return rows(s) * (s.heads + 2 * s.kv_heads) * s.head_size;
}
/// Elements of a norm of q and of k.
struct Widths {
  Widths(const AttentionShape& s, bool spans_heads)
      : q(s.head_size * (spans_heads ? s.heads : 1)),
        k(s.head_size * (spans_heads ? s.kv_heads : 1)) {}
  std::int64_t q, k;
};

/// Each run of `width` elements of a part of the row.
void norm_part(Values& out, std::int64_t begin, std::int64_t elements, std::int64_t width,
               const Values& weight) {
  for (std::int64_t first = begin; first < begin + elements; first += width) {
    double squares = 0.0;
    for (std::int64_t i = first; i < first + width; ++i)
      squares += out[static_cast<std::size_t>(i)] * out[static_cast<std::size_t>(i)];
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (std::int64_t i = 0; i < width; ++i)
      out[static_cast<std::size_t>(first + i)] *= rstd * weight[static_cast<std::size_t>(i)];
  }
}

Values head_norm(const AttentionShape& s, bool spans_heads, const Values& qkv,
                 const Values& q_weight, const Values& k_weight) {
  Values out = qkv;
  const Widths widths(s, spans_heads);
  const std::int64_t queries = s.heads * s.head_size;
  const std::int64_t keys = s.kv_heads * s.head_size;
  for (std::int64_t row = 0; row < rows(s); ++row) {
    const std::int64_t begin = row * (queries + 2 * keys);
    norm_part(out, begin, queries, widths.q, q_weight);
    norm_part(out, begin + queries, keys, widths.k, k_weight);
  }
  return out;
}

class HeadNormTest : public KernelTest {
 protected:
  struct Results {
    Buffer out, d_qkv, d_q_weight, d_k_weight;
    bool operator==(const Results&) const = default;
  };

  Results run(AttentionShape s, bool spans_heads, bool accumulate) {
    const Widths widths(s, spans_heads);
    return run(s, spans_heads, accumulate, random_values(widths.q, 2), random_values(widths.k, 3),
               0.0F);
  }
  Results run(AttentionShape s, bool spans_heads, bool accumulate, const Values& q_weights,
              const Values& k_weights, float offset) {
    s.type = type();
    const Widths widths(s, spans_heads);
    const Values qkv = random_values(qkv_count(s), 1, 2.0);
    const Buffer q_weight = typed(q_weights);
    const Buffer k_weight = typed(k_weights);
    const auto gradient = [&](std::int64_t width) {
      return accumulate ? typed(random_values(width, 5)) : poisoned(width);
    };
    Results r{typed(qkv), typed(random_values(qkv_count(s), 4)), gradient(widths.q),
              gradient(widths.k)};
    const std::int64_t heads = s.heads + s.kv_heads;
    Buffer raw = poisoned(rows(s) * heads * s.head_size);
    Buffer rstd(DType::f32, rows(s) * (spans_heads ? 2 : heads));
    table().head_norm_forward(s, spans_heads, r.out.data(), raw.data(), rstd.floats(),
                              q_weight.data(), k_weight.data(), offset, epsilon);
    Workspace workspace(table().norm_workspace_bytes(widths.q));
    table().head_norm_backward(s, spans_heads, r.d_qkv.data(), r.d_q_weight.data(),
                               r.d_k_weight.data(), raw.data(), rstd.floats(), q_weight.data(),
                               k_weight.data(), offset, accumulate, workspace.data());
    raw.values();
    rstd.values();
    workspace.check();
    return r;
  }

  void check(const AttentionShape& s, bool spans_heads, bool accumulate) {
    const Results results = run(s, spans_heads, accumulate);
    const Widths widths(s, spans_heads);
    const Values qkv = random_values(qkv_count(s), 1, 2.0);
    const Values q_weight = random_values(widths.q, 2);
    const Values k_weight = random_values(widths.k, 3);
    const Values d_out = random_values(qkv_count(s), 4);
    const auto of = [&](const Values& x, const Values& q, const Values& k) {
      return head_norm(s, spans_heads, x, q, k);
    };
    expect_close(results.out.values(), of(qkv, q_weight, k_weight), tolerance(), "out");
    const auto slopes = [&](auto objective, const Values& at, bool add) {
      Values expected =
          numeric_gradient([&](const Values& v) { return dot(objective(v), d_out); }, at);
      const Values before = random_values(static_cast<std::int64_t>(at.size()), 5);
      for (std::size_t i = 0; add && i < expected.size(); ++i) expected[i] += before[i];
      return expected;
    };
    expect_close(results.d_qkv.values(),
                 slopes([&](const Values& v) { return of(v, q_weight, k_weight); }, qkv, false),
                 tolerance(), "d_qkv");
    expect_close(
        results.d_q_weight.values(),
        slopes([&](const Values& v) { return of(qkv, v, k_weight); }, q_weight, accumulate),
        tolerance(), "d_q_weight");
    expect_close(
        results.d_k_weight.values(),
        slopes([&](const Values& v) { return of(qkv, q_weight, v); }, k_weight, accumulate),
        tolerance(), "d_k_weight");
  }
};

TEST_P(HeadNormTest, EqualsTheFormulaAndItsSlopes) {
  for (const AttentionShape& s : shapes)
    for (const bool spans_heads : {false, true})
      for (const bool accumulate : {false, true}) check(s, spans_heads, accumulate);
}

TEST_P(HeadNormTest, AnOffsetIsAddedToTheWeights) {
  // So few bits that the sums are exact in every type.
  const auto weights = [](std::int64_t count, double more) {
    Values values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(0.25 * static_cast<double>(i % 5) - 0.5 + more);
    return values;
  };
  for (const AttentionShape& s : shapes) {
    const Widths widths(s, false);
    const auto with = [&](double more, float offset) {
      return run(s, false, false, weights(widths.q, more), weights(widths.k, more), offset);
    };
    EXPECT_TRUE(with(0, 1.0F) == with(1, 0.0F));
  }
}

TEST_P(HeadNormTest, IsTheSameInAllWays) {
  const AttentionShape s{.batch = 3, .sequence = 131, .heads = 4, .kv_heads = 2, .head_size = 48};
  for (const bool spans_heads : {false, true})
    expect_same_in_all_ways([&] { return run(s, spans_heads, false); });
}

DSTUNE_FOR_TABLES(HeadNormTest);

}  // namespace
}  // namespace dstune::kernels::test
