// Adam and AdamW; bound by memory, 28 bytes a parameter in fp32.
#include "isa/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <bool Decoupled, class Gradient, class Extent>
inline Vector adam_vector(const AdamStep& step, float* master, float* m, float* v,
                          const Gradient* gradient, std::int64_t i, Extent extent) {
  Vector parameter = load(master + i, extent);
  Vector slope = load(gradient + i, extent) * step.gradient_scale;
  if (Decoupled) {
    parameter = parameter * (1.0F - step.learning_rate * step.weight_decay);
  } else {
    slope = multiply_add(splat(step.weight_decay), parameter, slope);
  }
  const Vector first =
      multiply_add(splat(step.beta1), load(m + i, extent), (1.0F - step.beta1) * slope);
  const Vector second =
      multiply_add(splat(step.beta2), load(v + i, extent), (1.0F - step.beta2) * slope * slope);
  store(m + i, first, extent);
  store(v + i, second, extent);
  const Vector spread = square_root(second) / __builtin_sqrtf(step.bias_correction2) + step.epsilon;
  parameter = parameter - (step.learning_rate / step.bias_correction1) * (first / spread);
  store(master + i, parameter, extent);
  return parameter;
}

}  // namespace

void adam(const AdamStep& step, float* master, float* m, float* v, DType gradient_type,
          const void* gradient, DType model_type, void* model, std::int64_t count) {
  with_type(gradient_type, [&](auto tag) {
    const auto* slopes = static_cast<const decltype(tag)*>(gradient);
    with_type(model_type, [&](auto model_tag) {
      using Model = decltype(model_tag);
      for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
        for_vectors(begin, end, [&](std::int64_t i, auto extent) {
          const Vector parameter = step.decoupled_decay
                                       ? adam_vector<true>(step, master, m, v, slopes, i, extent)
                                       : adam_vector<false>(step, master, m, v, slopes, i, extent);
          if (sizeof(Model) < sizeof(float)) {
            store(static_cast<Model*>(model) + i, parameter, extent);
          }
        });
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
