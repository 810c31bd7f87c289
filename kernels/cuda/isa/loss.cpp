// Softmax cross-entropy, fused with its gradient: a block a row, which it reads twice, the second
// time from its end on: what was read last is what caches still have.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/launches.hpp"
#include "isa/quick.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class Form>
struct CrossEntropy {
  float* losses;
  Output logits;
  const std::int32_t* targets;
  std::int64_t vocabulary, stride;
  float scale;
  Form form;

  DSTUNE_DEVICE DType type() const { return logits.type; }
  DSTUNE_DEVICE void assume(DType all) { logits.type = all; }

  template <int N>
  DSTUNE_DEVICE void row(const Block& block, std::int64_t row) const {
    const std::int64_t begin = row * stride;
    const std::int32_t target = targets[row];
    if (target < 0) {
      for_logits<N, false>(block, begin, [&]<int M>(int i, const Values<M>&) {
        logits.store(begin + i, Values<M>{});
      });
      if (block.thread() == 0) losses[row] = 0.0F;
      return;
    }
    // Each thread's sum is of exponentials without its own largest so far.
    float largest = -3.0e38F;
    float sum = 0.0F;
    for_logits<N, false>(block, begin, [&]<int M>(int, const Values<M>& values) {
      float now = largest;
      Values<M> formed;
      for (int k = 0; k < M; ++k) formed.of[k] = form.value(values.of[k]);
      for (int k = 0; k < M; ++k) now = larger(formed.of[k], now);
      if (now > largest) {
        sum *= quick_exponential(largest - now);
        largest = now;
      }
      for (int k = 0; k < M; ++k) sum += quick_exponential(formed.of[k] - largest);
    });
    const float shift = block_largest(block, largest);
    // The sum's barriers also stand between reading the target's logit and overwriting it.
    const float target_logit = form.value(logits[begin + target]);
    const float from_target = target_logit - shift;
    sum = block_sum(block, sum * quick_exponential(largest - shift));
    const float factor = scale / sum;
    const float at_target =
        (quick_exponential(from_target) / sum - 1.0F) * scale * form.slope(target_logit);
    for_logits<N, true>(block, begin, [&]<int M>(int i, Values<M> values) {
      const int of_target = target - i;
      for (int k = 0; k < M; ++k) {
        const float formed = form.value(values.of[k]);
        const float slope = quick_exponential(formed - shift) * factor * form.slope(formed);
        values.of[k] = k == of_target ? at_target : slope;
      }
      logits.store(begin + i, values);
    });
    if (block.thread() == 0) losses[row] = logf(sum) - from_target;
  }

 private:
  /// step(i, values) for this thread's part of the row that begins at `begin`. Vocabularies are
  /// often odd: N elements at a time from the row's first multiple of N on. Some packs are asked
  /// for before the first of them is looked at.
  template <int N, bool from_end, class Step>
  DSTUNE_DEVICE void for_logits(const Block& block, std::int64_t begin, Step step) const {
    const int before = static_cast<int>((N - begin % N) % N);
    const int width = static_cast<int>(vocabulary);
    const int first = before < width ? before : width;
    const int packs = (width - first) / N;
    if constexpr (N > 1) {
      const int i = block.thread();
      if (i < first) step(i, logits.load<1>(begin + i));
    }
    constexpr int ahead = 3;
    const int batch = ahead * block.threads();
    const int batches = (packs + batch - 1) / batch;
    for (int number = 0; number < batches; ++number) {
      const int pack_of = (from_end ? batches - 1 - number : number) * batch + block.thread();
      Values<N> values[ahead];
      DSTUNE_UNROLL
      for (int j = 0; j < ahead; ++j) {
        const int wanted = pack_of + j * block.threads();
        values[j] = logits.load<N>(begin + first + (wanted < packs ? wanted : 0) * N);
      }
      DSTUNE_UNROLL
      for (int j = 0; j < ahead; ++j) {
        const int wanted = pack_of + j * block.threads();
        if (wanted < packs) step(first + wanted * N, values[j]);
      }
    }
    if constexpr (N > 1) {
      const int i = first + packs * N + block.thread();
      if (i < width) step(i, logits.load<1>(begin + i));
    }
  }
};

}  // namespace

void cross_entropy(DType type, float* losses, void* logits, const std::int32_t* targets,
                   std::int64_t rows, std::int64_t vocabulary, std::int64_t stride, float scale,
                   LogitsForm form) {
  if (rows <= 0 || vocabulary <= 0) return;
  with_either<true, false>(form.cap > 0.0F, [&](auto is_capped) {
    using Body = CrossEntropy<FormedLogits<is_capped>>;
    const Body body{losses,
                    {logits, type},
                    targets,
                    vocabulary,
                    stride,
                    scale,
                    {form.multiplier, Softcap(form.cap)}};
    const cuda::Grid grid{.blocks = rows, .shared_bytes = reduction_bytes};
    with_packs(are_packed(logits), [&](auto n) { launch(grid, EachRow<n, Body>{body}); });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
