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
std::int64_t normed(const AttentionShape& s) {
  return rows(s) * (s.heads + s.kv_heads);
}

/// Whose weight a head of the packed row has: 0 q, 1 k, 2 none.
int part_of(const AttentionShape& s, std::int64_t head) {
  if (head < s.heads) return 0;
  return head < s.heads + s.kv_heads ? 1 : 2;
}

Values head_norm(const AttentionShape& s, const Values& qkv, const Values& q_weight,
                 const Values& k_weight) {
  Values out = qkv;
  const std::int64_t all = s.heads + 2 * s.kv_heads;
  for (std::int64_t number = 0; number < rows(s) * all; ++number) {
    const int part = part_of(s, number % all);
    if (part == 2) continue;
    const auto first = static_cast<std::size_t>(number * s.head_size);
    const auto size = static_cast<std::size_t>(s.head_size);
    double squares = 0.0;
    for (std::size_t i = 0; i < size; ++i) squares += qkv[first + i] * qkv[first + i];
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(size) + epsilon);
    for (std::size_t i = 0; i < size; ++i)
      out[first + i] = qkv[first + i] * rstd * (part == 0 ? q_weight : k_weight)[i];
  }
  return out;
}

class HeadNormTest : public KernelTest {
 protected:
  struct Results {
    Buffer out, d_qkv, d_q_weight, d_k_weight;
    bool operator==(const Results&) const = default;
  };

  Results run(AttentionShape s, bool accumulate, const Values& before) {
    s.type = type();
    const Values qkv = random_values(qkv_count(s), 1, 2.0);
    const Buffer q_weight = typed(random_values(s.head_size, 2));
    const Buffer k_weight = typed(random_values(s.head_size, 3));
    const Buffer weight_gradient = accumulate ? typed(before) : poisoned(s.head_size);
    Results r{typed(qkv), typed(random_values(qkv_count(s), 4)), weight_gradient, weight_gradient};
    Buffer raw = poisoned(normed(s) * s.head_size);
    Buffer rstd(DType::f32, normed(s));
    table().head_norm_forward(s, r.out.data(), raw.data(), rstd.floats(), q_weight.data(),
                              k_weight.data(), epsilon);
    Workspace workspace(table().norm_workspace_bytes(s.head_size));
    table().head_norm_backward(s, r.d_qkv.data(), r.d_q_weight.data(), r.d_k_weight.data(),
                               raw.data(), rstd.floats(), q_weight.data(), k_weight.data(),
                               accumulate, workspace.data());
    raw.values();
    rstd.values();
    workspace.check();
    return r;
  }
};

TEST_P(HeadNormTest, EqualsTheFormulaAndItsSlopes) {
  for (const AttentionShape& s : shapes) {
    for (const bool accumulate : {false, true}) {
      const Values before = random_values(s.head_size, 5);
      const Results results = run(s, accumulate, before);
      const Values qkv = random_values(qkv_count(s), 1, 2.0);
      const Values q_weight = random_values(s.head_size, 2);
      const Values k_weight = random_values(s.head_size, 3);
      const Values d_out = random_values(qkv_count(s), 4);
      expect_close(results.out.values(), head_norm(s, qkv, q_weight, k_weight), tolerance(), "out");
      const auto slopes = [&](auto objective, const Values& at, bool add) {
        Values expected =
            numeric_gradient([&](const Values& v) { return dot(objective(v), d_out); }, at);
        for (std::size_t i = 0; add && i < expected.size(); ++i) expected[i] += before[i];
        return expected;
      };
      expect_close(
          results.d_qkv.values(),
          slopes([&](const Values& v) { return head_norm(s, v, q_weight, k_weight); }, qkv, false),
          tolerance(), "d_qkv");
      expect_close(results.d_q_weight.values(),
                   slopes([&](const Values& v) { return head_norm(s, qkv, v, k_weight); }, q_weight,
                          accumulate),
                   tolerance(), "d_q_weight");
      expect_close(results.d_k_weight.values(),
                   slopes([&](const Values& v) { return head_norm(s, qkv, q_weight, v); }, k_weight,
                          accumulate),
                   tolerance(), "d_k_weight");
    }
  }
}

TEST_P(HeadNormTest, IsTheSameInAllWays) {
  const AttentionShape s{.batch = 3, .sequence = 131, .heads = 4, .kv_heads = 2, .head_size = 48};
  expect_same_in_all_ways([&] { return run(s, false, {}); });
}

DSTUNE_FOR_TABLES(HeadNormTest);

}  // namespace
}  // namespace dstune::kernels::test
