// Softmax cross-entropy, fused with its gradient: a block a row, which it reads twice.
#include "common/exponential.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct CrossEntropy {
  float* losses;
  Output logits;
  const std::int32_t* targets;
  std::int64_t vocabulary, stride;
  float scale;

  /// step<how many>(i) for this thread's part of the row that begins at `begin`. Vocabularies are
  /// often odd: N elements at a time from the row's first multiple of N on.
  template <int N, class Step>
  DSTUNE_DEVICE void for_logits(const Block& block, std::int64_t begin, Step step) const {
    const std::int64_t before = (N - begin % N) % N;
    const std::int64_t first = before < vocabulary ? before : vocabulary;
    const std::int64_t packs = (vocabulary - first) / N;
    if constexpr (N > 1) {
      if (block.thread() < first) step.template operator()<1>(block.thread());
    }
    for (std::int64_t i = block.thread(); i < packs; i += block.threads())
      step.template operator()<N>(first + i * N);
    if constexpr (N > 1) {
      const std::int64_t rest = first + packs * N + block.thread();
      if (rest < vocabulary) step.template operator()<1>(rest);
    }
  }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * stride;
    const std::int32_t target = targets[row];
    if (target < 0) {
      for_logits<N>(block, begin,
                    [&]<int M>(std::int64_t i) { logits.store(begin + i, Values<M>{}); });
      if (block.thread() == 0) losses[row] = 0.0F;
      return;
    }
    // The largest so far, and the sum for it: one pass makes both.
    float largest = -3.0e38F;
    float sum = 0.0F;
    for_logits<N>(block, begin, [&]<int M>(std::int64_t i) {
      const Values<M> values = logits.load<M>(begin + i);
      float now = largest;
      for (int k = 0; k < M; ++k) now = larger(values.of[k], now);
      if (now > largest) {
        sum *= exponential(largest - now);
        largest = now;
      }
      for (int k = 0; k < M; ++k) sum += exponential(values.of[k] - largest);
    });
    const float shift = block_largest(block, largest);
    // The sum's barriers also stand between reading the target's logit and overwriting it.
    const float from_target = logits[begin + target] - shift;
    sum = block_sum(block, sum * exponential(largest - shift));
    const float factor = scale / sum;
    for_logits<N>(block, begin, [&]<int M>(std::int64_t i) {
      Values<M> values = logits.load<M>(begin + i);
      for (int k = 0; k < M; ++k) {
        const float weight = exponential(values.of[k] - shift);
        values.of[k] = i + k == target ? (weight / sum - 1.0F) * scale : weight * factor;
      }
      logits.store(begin + i, values);
    });
    if (block.thread() == 0) losses[row] = logf(sum) - from_target;
  }
};

}  // namespace

void cross_entropy(DType type, float* losses, void* logits, const std::int32_t* targets,
                   std::int64_t rows, std::int64_t vocabulary, std::int64_t stride, float scale) {
  if (rows <= 0 || vocabulary <= 0) return;
  const CrossEntropy body{losses, {logits, type}, targets, vocabulary, stride, scale};
  const cuda::Grid grid{.blocks = rows, .shared_bytes = reduction_bytes};
  if (is_packed(logits)) {
    launch(grid, EachRow<pack, CrossEntropy>{body});
  } else {
    launch(grid, EachRow<1, CrossEntropy>{body});
  }
}

}  // namespace dstune::kernels::DSTUNE_ISA
