// Softmax cross-entropy, fused with its gradient.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class T>
float largest_of(const T* values, std::int64_t count) {
  // The remainder repeats the row's last whole vector where there is one; zeros would win.
  if (count < lanes) {
    float largest = load(values, Part{1})[0];
    for (std::int64_t i = 1; i < count; ++i) {
      const float value = load(values + i, Part{1})[0];
      largest = value > largest ? value : largest;
    }
    return largest;
  }
  Vector largest = load(values + count - lanes, Full{});
  for (std::int64_t i = 0; i + lanes <= count; i += lanes) {
    largest = larger(load(values + i, Full{}), largest);
  }
  return largest_lane(largest);
}

template <class T, class Form>
float sum_of_exponentials(const T* values, std::int64_t count, const Form& form, float shift) {
  // Four chains hide the latency of the additions.
  Vector sums[4] = {Vector{}, Vector{}, Vector{}, Vector{}};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (int chain = 0; chain < 4; ++chain) {
      sums[chain] += exponential(form.value(load(values + i + chain * lanes, Full{})) - shift);
    }
  }
  for_vectors(i, count, [&](std::int64_t j, auto extent) {
    sums[0] += inside(exponential(form.value(load(values + j, extent)) - shift), extent);
  });
  return sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T, class Form>
float cross_entropy_row(T* logits, std::int32_t target, std::int64_t vocabulary, float scale,
                        const Form& form) {
  // The form keeps their order.
  const float shift = form.value(splat(largest_of(logits, vocabulary)))[0];
  const float sum = sum_of_exponentials(logits, vocabulary, form, shift);
  const Vector of_target = form.value(splat(load(logits + target, Part{1})[0]));
  const float target_logit = of_target[0];
  const float factor = scale / sum;
  const float target_gradient =
      (exponential(splat(target_logit - shift))[0] / sum - 1.0F) * scale * form.slope(of_target)[0];
  for_vectors(0, vocabulary, [&](std::int64_t i, auto extent) {
    const Vector logit = form.value(load(logits + i, extent));
    store(logits + i, exponential(logit - shift) * factor * form.slope(logit), extent);
  });
  store(logits + target, splat(target_gradient), Part{1});
  return __builtin_logf(sum) - (target_logit - shift);
}

}  // namespace

void cross_entropy(DType type, float* losses, void* logits, const std::int32_t* targets,
                   std::int64_t rows, std::int64_t vocabulary, std::int64_t stride, float scale,
                   LogitsForm form) {
  with_either<true, false>(form.cap > 0.0F, [&](auto is_capped) {
    const FormedLogits<is_capped> formed{form.multiplier, Softcap(form.cap)};
    with_type(type, [&](auto tag) {
      using T = decltype(tag);
      for_items(rows, vocabulary, [&](std::int64_t row) {
        T* of_row = static_cast<T*>(logits) + row * stride;
        if (targets[row] < 0) {
          losses[row] = 0.0F;
          zero(of_row, sizeof(T) * static_cast<std::size_t>(vocabulary));
          return;
        }
        losses[row] = cross_entropy_row(of_row, targets[row], vocabulary, scale, formed);
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
