#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernel_test.hpp"

namespace dstune::kernels::test {
namespace {

/// Attention in double with every score kept.
class Reference {
 public:
  Reference(const AttentionShape& shape, const Values& qkv) : s_(shape), qkv_(qkv) {
    const std::int64_t rows = s_.batch * s_.sequence;
    out_.resize(static_cast<std::size_t>(rows * s_.heads * s_.head_size));
    log_sum_exp_.resize(static_cast<std::size_t>(s_.batch * s_.heads * s_.sequence));
    slopes_.resize(static_cast<std::size_t>(s_.sequence));
    for_queries([&](std::int64_t batch, std::int64_t head, std::int64_t query) {
      const Values p = probabilities(batch, head, query);
      for (std::int64_t i = 0; i < s_.head_size; ++i) {
        double sum = 0.0;
        for (std::int64_t key = first(query); key < keys(query); ++key)
          sum += p[static_cast<std::size_t>(key)] * qkv_[value_at(batch, head, key, i)];
        out_[out_at(batch, head, query, i)] = sum;
      }
    });
  }

  const Values& out() const { return out_; }
  const Values& log_sum_exp() const { return log_sum_exp_; }

  Values gradient(const Values& d_out) {
    Values d_qkv(qkv_.size());
    for_queries([&](std::int64_t batch, std::int64_t head, std::int64_t query) {
      const Values p = probabilities(batch, head, query);
      Values d_p(p.size());
      double delta = 0.0;
      const auto size = static_cast<std::size_t>(s_.head_size);
      const double* const d = d_out.data() + out_at(batch, head, query, 0);
      // Keys before the window have no part in it.
      for (std::int64_t key = first(query); key < keys(query); ++key) {
        const auto at = static_cast<std::size_t>(key);
        const std::size_t value = value_at(batch, head, key, 0);
        for (std::size_t i = 0; i < size; ++i) {
          d_p[at] += d[i] * qkv_[value + i];
          d_qkv[value + i] += p[at] * d[i];
        }
        delta += p[at] * d_p[at];
      }
      const std::size_t q = query_at(batch, head, query, 0);
      for (std::int64_t key = first(query); key < keys(query); ++key) {
        const auto at = static_cast<std::size_t>(key);
        const std::size_t k = key_at(batch, head, key, 0);
        const double d_score = p[at] * (d_p[at] - delta) * scale() * slopes_[at];
        for (std::size_t i = 0; i < size; ++i) {
          d_qkv[q + i] += d_score * qkv_[k + i];
          d_qkv[k + i] += d_score * qkv_[q + i];
        }
      }
    });
    return d_qkv;
  }

 private:
  template <class Body>
  void for_queries(Body body) const {
    for (std::int64_t batch = 0; batch < s_.batch; ++batch) {
      for (std::int64_t head = 0; head < s_.heads; ++head)
        for (std::int64_t query = 0; query < s_.sequence; ++query) body(batch, head, query);
    }
  }

  Values probabilities(std::int64_t batch, std::int64_t head, std::int64_t query) {
    Values p;
    double sum = 0.0;
    for (std::int64_t key = 0; key < keys(query); ++key) {
      if (key < first(query)) {
        p.push_back(0.0);
        continue;
      }
      const double* const q = qkv_.data() + query_at(batch, head, query, 0);
      const double* const k = qkv_.data() + key_at(batch, head, key, 0);
      double score = 0.0;
      for (std::int64_t i = 0; i < s_.head_size; ++i) score += q[i] * k[i];
      const double capped = cap() > 0 ? std::tanh(score * scale() / cap()) : 0;
      slopes_[static_cast<std::size_t>(key)] = 1 - capped * capped;
      p.push_back(std::exp(cap() > 0 ? cap() * capped : score * scale()));
      sum += p.back();
    }
    for (double& value : p) value /= sum;
    log_sum_exp_[static_cast<std::size_t>((batch * s_.heads + head) * s_.sequence + query)] =
        std::log(sum);
    return p;
  }

  double cap() const { return static_cast<double>(s_.softcap); }
  double scale() const {
    const auto given = static_cast<double>(s_.softmax_scale);
    return given > 0 ? given : 1.0 / std::sqrt(static_cast<double>(s_.head_size));
  }
  std::int64_t keys(std::int64_t query) const { return s_.causal ? query + 1 : s_.sequence; }
  std::int64_t first(std::int64_t query) const {
    return s_.window > 0 ? std::max<std::int64_t>(0, query + 1 - s_.window) : 0;
  }
  std::int64_t kv_head(std::int64_t head) const { return head * s_.kv_heads / s_.heads; }
  std::size_t qkv_at(std::int64_t batch, std::int64_t row, std::int64_t head,
                     std::int64_t i) const {
    const std::int64_t all_heads = s_.heads + 2 * s_.kv_heads;
    return static_cast<std::size_t>(
        ((batch * s_.sequence + row) * all_heads + head) * s_.head_size + i);
  }
  std::size_t query_at(std::int64_t batch, std::int64_t head, std::int64_t row,
                       std::int64_t i) const {
    return qkv_at(batch, row, head, i);
  }
  std::size_t key_at(std::int64_t batch, std::int64_t head, std::int64_t row,
                     std::int64_t i) const {
    return qkv_at(batch, row, s_.heads + kv_head(head), i);
  }
  std::size_t value_at(std::int64_t batch, std::int64_t head, std::int64_t row,
                       std::int64_t i) const {
    return qkv_at(batch, row, s_.heads + s_.kv_heads + kv_head(head), i);
  }
  std::size_t out_at(std::int64_t batch, std::int64_t head, std::int64_t row,
                     std::int64_t i) const {
    return static_cast<std::size_t>(((batch * s_.sequence + row) * s_.heads + head) * s_.head_size +
                                    i);
  }

  AttentionShape s_;
  const Values& qkv_;
  Values out_;
  Values log_sum_exp_;
  Values slopes_;  ///< of the cap, by key of the query that was looked at last
};

std::int64_t qkv_count(const AttentionShape& s) {
  return s.batch * s.sequence * (s.heads + 2 * s.kv_heads) * s.head_size;
}
std::int64_t out_count(const AttentionShape& s) {
  return s.batch * s.sequence * s.heads * s.head_size;
}

const AttentionShape shapes[] = {
    {.batch = 2, .sequence = 1, .heads = 2, .kv_heads = 2, .head_size = 8},
    {.batch = 2, .sequence = 7, .heads = 4, .kv_heads = 2, .head_size = 12},
    {.batch = 1, .sequence = 64, .heads = 3, .kv_heads = 3, .head_size = 64},
    {.batch = 1, .sequence = 65, .heads = 6, .kv_heads = 2, .head_size = 48},
    {.batch = 2, .sequence = 131, .heads = 4, .kv_heads = 1, .head_size = 33},
    {.batch = 1, .sequence = 200, .heads = 2, .kv_heads = 2, .head_size = 80},
    {.batch = 1, .sequence = 40, .heads = 2, .kv_heads = 1, .head_size = 96},
    {.batch = 1, .sequence = 40, .heads = 2, .kv_heads = 1, .head_size = 256},
    {.batch = 1, .sequence = 70, .heads = 2, .kv_heads = 1, .head_size = 16, .softmax_scale = 0.5F},
    {.batch = 1,
     .sequence = 70,
     .heads = 4,
     .kv_heads = 2,
     .head_size = 24,
     .softmax_scale = 1.5F,
     .softcap = 2},
};

/// Around the sizes of tiles, and within and beyond the sequence.
constexpr std::int64_t windows[] = {1, 2, 31, 33, 64, 65, 130, 500};

class AttentionTest : public KernelTest {
 protected:
  struct Results {
    Buffer out, log_sum_exp, d_qkv;
    bool operator==(const Results&) const = default;
  };

  /// Heads of more than 128 elements have a backward on some GPUs.
  bool does(const AttentionShape& shape) const {
    if (type() == DType::f32 || !has_library_attention()) return true;
    return shape.sequence > 1 && shape.head_size % 8 == 0 && shape.head_size <= 128;
  }
  Results run(AttentionShape shape, const Values& qkv, const Values& d_out) {
    shape.type = type();
    Results r{poisoned(out_count(shape)),
              Buffer(DType::f32, shape.batch * shape.heads * shape.sequence),
              poisoned(qkv_count(shape))};
    Workspace workspace(table().attention_workspace_bytes(shape));
    table().attention_forward(shape, r.out.data(), r.log_sum_exp.floats(), typed(qkv).data(),
                              workspace.data());
    table().attention_backward(shape, r.d_qkv.data(), typed(d_out).data(), typed(qkv).data(),
                               r.out.data(), r.log_sum_exp.floats(), workspace.data());
    workspace.check();
    return r;
  }
  void check(const AttentionShape& shape) {
    const Values qkv = random_values(qkv_count(shape), 1, 2.0);
    const Values d_out = random_values(out_count(shape), 2);
    const Results results = run(shape, qkv, d_out);
    Reference reference(shape, qkv);
    const std::string what =
        "sequence " + std::to_string(shape.sequence) + ", window " + std::to_string(shape.window);
    expect_close(results.out.values(), reference.out(), tolerance(), what + " out");
    expect_close(results.log_sum_exp.values(), reference.log_sum_exp(), 1e-5, what + " lse");
    expect_close(results.d_qkv.values(), reference.gradient(d_out), tolerance(), what + " d_qkv");
  }
};

TEST_P(AttentionTest, EqualsTheFormula) {
  for (AttentionShape shape : shapes) {
    if (!does(shape) || (is_emulated() && shape.sequence == 200)) continue;
    for (const bool causal : {true, false}) {
      shape.causal = causal;
      check(shape);
    }
  }
}

TEST_P(AttentionTest, SeesItsWindowAlone) {
  std::size_t number = 0;
  for (AttentionShape shape : shapes) {
    if (!does(shape)) continue;
    for (const std::int64_t window : windows) {
      // Every shape with some windows, every window with some shape.
      ++number;
      if (is_emulated() && (number + number / std::size(windows)) % 4 != 0) continue;
      shape.window = window;
      check(shape);
    }
  }
}

// Masked keys may be of any size.
TEST_P(AttentionTest, KeysBeforeTheWindowDoNotMatter) {
  const AttentionShape shape{
      .batch = 1, .sequence = 150, .heads = 2, .kv_heads = 1, .head_size = 16, .window = 40};
  Values qkv = random_values(qkv_count(shape), 1);
  const Values d_out = random_values(out_count(shape), 2);
  const std::int64_t row_width = (shape.heads + 2 * shape.kv_heads) * shape.head_size;
  const auto last_row = [&](const Values& values) {
    return Values(values.end() - shape.heads * shape.head_size, values.end());
  };
  const Values before = last_row(run(shape, qkv, d_out).out.values());
  for (std::int64_t i = 0; i < (shape.sequence - shape.window) * row_width; ++i)
    qkv[static_cast<std::size_t>(i)] *= 1000.0;
  EXPECT_EQ(last_row(run(shape, qkv, d_out).out.values()), before);
}

TEST_P(AttentionTest, AWindowAsLongAsTheSequenceChangesNoBit) {
  AttentionShape shape{.batch = 1, .sequence = 131, .heads = 2, .kv_heads = 2, .head_size = 24};
  const Values qkv = random_values(qkv_count(shape), 1);
  const Values d_out = random_values(out_count(shape), 2);
  const Results full = run(shape, qkv, d_out);
  shape.window = 131;
  EXPECT_EQ(run(shape, qkv, d_out), full);
}

TEST_P(AttentionTest, StaysFiniteWithLargeScores) {
  const AttentionShape shape{
      .batch = 1, .sequence = 70, .heads = 1, .kv_heads = 1, .head_size = 16};
  const Values qkv = random_values(qkv_count(shape), 1, 16.0);
  const Values d_out = random_values(out_count(shape), 2);
  const Results results = run(shape, qkv, d_out);
  // exp() of the plain scores overflows fp32 here, not double.
  Reference reference(shape, qkv);
  expect_close(results.out.values(), reference.out(), 10 * tolerance(), "out");
}

TEST_P(AttentionTest, IsTheSameInAllWays) {
  const AttentionShape shape{
      .batch = is_emulated() ? 1 : 3, .sequence = 131, .heads = 4, .kv_heads = 2, .head_size = 48};
  const Values qkv = random_values(qkv_count(shape), 1);
  const Values d_out = random_values(out_count(shape), 2);
  expect_same_in_all_ways([&] { return run(shape, qkv, d_out); });
}

DSTUNE_FOR_TABLES(AttentionTest);

TEST(AttentionReferenceTest, GradientEqualsFiniteDifferences) {
  for (const std::int64_t window : {0, 2, -1}) {
    AttentionShape shape{.batch = 2, .sequence = 5, .heads = 4, .kv_heads = 2, .head_size = 6};
    shape.causal = window >= 0;
    shape.window = std::max<std::int64_t>(0, window);
    const Values qkv = random_values(qkv_count(shape), 1, 2.0);
    const Values d_out = random_values(out_count(shape), 2);
    const Values numeric = numeric_gradient(
        [&](const Values& v) { return dot(Reference(shape, v).out(), d_out); }, qkv);
    expect_close(Reference(shape, qkv).gradient(d_out), numeric, 1e-8, "gradient");
  }
}

}  // namespace
}  // namespace dstune::kernels::test
