// The optimizers' updates (docs/inside/reference-step.md, 5), for a Vector of any backend; bound by
// memory: Adam moves 28 bytes a parameter in fp32.
#include <cstdint>

#include "common/function.hpp"
#include "common/functions.hpp"
#include "isa/update.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// The rule of an optimizer for a vector of parameters: updates the moments that it has and returns
/// the parameters. `slope` is the gradient, scaled.
template <bool Decoupled>
struct AdamRule {
  static constexpr bool has_first = true, has_second = true;
  AdamStep step;

  DSTUNE_FUNCTION Vector operator()(Vector parameter, Vector slope, Vector& first,
                                    Vector& second) const {
    if (Decoupled) {
      parameter = parameter * (1.0F - step.learning_rate * step.weight_decay);
    } else {
      slope = multiply_add(splat(step.weight_decay), parameter, slope);
    }
    first = multiply_add(splat(step.beta1), first, (1.0F - step.beta1) * slope);
    second = multiply_add(splat(step.beta2), second, (1.0F - step.beta2) * slope * slope);
    const Vector spread = square_root(second) / square_root(step.bias_correction2) + step.epsilon;
    return parameter - (step.learning_rate / step.bias_correction1) * (first / spread);
  }
};

struct LionRule {
  static constexpr bool has_first = true, has_second = false;
  /// The greatest of negative numbers.
  static constexpr float below_zero = -0x1p-149F;
  LionStep step;

  DSTUNE_FUNCTION Vector operator()(Vector parameter, Vector slope, Vector& first, Vector&) const {
    const Vector direction = multiply_add(splat(step.beta1), first, (1.0F - step.beta1) * slope);
    const Vector up = splat(step.learning_rate);
    const Vector move = direction > splat(step.rises_at_zero ? 0.0F : below_zero) ? -up : up;
    first = multiply_add(splat(step.beta2), first, (1.0F - step.beta2) * slope);
    return multiply_add(parameter, splat(1.0F - step.learning_rate * step.weight_decay), move);
  }
};

template <bool Momentum>
struct SgdRule {
  static constexpr bool has_first = Momentum, has_second = false;
  SgdStep step;

  DSTUNE_FUNCTION Vector operator()(Vector parameter, Vector slope, Vector& first, Vector&) const {
    slope = multiply_add(splat(step.weight_decay), parameter, slope);
    if (Momentum) {
      first = multiply_add(splat(step.momentum), first, step.gradient_share * slope);
      slope = step.nesterov ? multiply_add(splat(step.momentum), first, slope) : first;
    }
    return multiply_add(splat(-step.learning_rate), slope, parameter);
  }
};

struct AdagradRule {
  static constexpr bool has_first = false, has_second = true;
  AdagradStep step;

  DSTUNE_FUNCTION Vector operator()(Vector parameter, Vector slope, Vector&, Vector& second) const {
    const Vector decayed = multiply_add(splat(step.weight_decay), parameter, slope);
    second = multiply_add(decayed, decayed, second);
    const Vector numerator = step.decays_numerator ? decayed : slope;
    return parameter - step.learning_rate * (numerator / (square_root(second) + step.epsilon));
  }
};

}  // namespace

void adam(const AdamStep& step, const UpdateTensors& tensors, std::int64_t count) {
  with_either<true, false>(step.decoupled_decay, [&](auto decoupled) {
    update(AdamRule<decoupled>{step}, tensors, count);
  });
}

void lion(const LionStep& step, const UpdateTensors& tensors, std::int64_t count) {
  update(LionRule{step}, tensors, count);
}

void sgd(const SgdStep& step, const UpdateTensors& tensors, std::int64_t count) {
  with_either<true, false>(tensors.m != nullptr,
                           [&](auto momentum) { update(SgdRule<momentum>{step}, tensors, count); });
}

void adagrad(const AdagradStep& step, const UpdateTensors& tensors, std::int64_t count) {
  update(AdagradRule{step}, tensors, count);
}

}  // namespace dstune::kernels::DSTUNE_ISA
