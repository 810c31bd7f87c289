// Softmax cross-entropy, fused with its gradient: a block a row, three passes over it.
#include "common/exponential.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

struct CrossEntropy {
  float* losses;
  Output logits;
  const std::int32_t* targets;
  std::int64_t vocabulary;
  float scale;

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * vocabulary;
    const std::int32_t target = targets[row];
    if (target < 0) {
      for_row<N>(block, vocabulary, [&](std::int64_t i) { logits.store(begin + i, Values<N>{}); });
      if (block.thread() == 0) losses[row] = 0.0F;
      return;
    }
    // Any element of the row will do to begin with.
    float largest = logits[begin];
    for_row<N>(block, vocabulary, [&](std::int64_t i) {
      const Values<N> values = logits.load<N>(begin + i);
      for (int k = 0; k < N; ++k) largest = larger(values.of[k], largest);
    });
    const float shift = block_largest(block, largest);
    float sum = 0.0F;
    for_row<N>(block, vocabulary, [&](std::int64_t i) {
      const Values<N> values = logits.load<N>(begin + i);
      for (int k = 0; k < N; ++k) sum += exponential(values.of[k] - shift);
    });
    // Its barriers also stand between reading the target's logit and overwriting it.
    const float from_target = logits[begin + target] - shift;
    sum = block_sum(block, sum);
    const float factor = scale / sum;
    for_row<N>(block, vocabulary, [&](std::int64_t i) {
      Values<N> values = logits.load<N>(begin + i);
      for (int k = 0; k < N; ++k) {
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
                   std::int64_t rows, std::int64_t vocabulary, float scale) {
  const CrossEntropy body{losses, {logits, type}, targets, vocabulary, scale};
  for_rows(rows, vocabulary, body, body.logits);
}

}  // namespace dstune::kernels::DSTUNE_ISA
