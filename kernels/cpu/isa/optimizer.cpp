// The optimizers' updates; bound by memory: Adam moves 28 bytes a parameter in fp32.
#include "isa/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// What an optimizer does to a vector of parameters: updates the moments that it has and returns
/// the parameters. `slope` is the gradient, scaled.
template <bool Decoupled>
struct AdamRule {
  static constexpr bool has_first = true, has_second = true;
  const AdamStep& step;

  Vector operator()(Vector parameter, Vector slope, Vector& first, Vector& second) const {
    if (Decoupled) {
      parameter = parameter * (1.0F - step.learning_rate * step.weight_decay);
    } else {
      slope = multiply_add(splat(step.weight_decay), parameter, slope);
    }
    first = multiply_add(splat(step.beta1), first, (1.0F - step.beta1) * slope);
    second = multiply_add(splat(step.beta2), second, (1.0F - step.beta2) * slope * slope);
    const Vector spread =
        square_root(second) / __builtin_sqrtf(step.bias_correction2) + step.epsilon;
    return parameter - (step.learning_rate / step.bias_correction1) * (first / spread);
  }
};

struct LionRule {
  static constexpr bool has_first = true, has_second = false;
  const LionStep& step;

  Vector operator()(Vector parameter, Vector slope, Vector& first, Vector&) const {
    const Vector direction = multiply_add(splat(step.beta1), first, (1.0F - step.beta1) * slope);
    const Vector up = splat(step.learning_rate);
    const Vector move =
        step.rises_at_zero ? (direction > 0 ? -up : up) : (direction >= 0 ? -up : up);
    first = multiply_add(splat(step.beta2), first, (1.0F - step.beta2) * slope);
    return multiply_add(parameter, splat(1.0F - step.learning_rate * step.weight_decay), move);
  }
};

template <bool Momentum>
struct SgdRule {
  static constexpr bool has_first = Momentum, has_second = false;
  const SgdStep& step;

  Vector operator()(Vector parameter, Vector slope, Vector& first, Vector&) const {
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
  const AdagradStep& step;

  Vector operator()(Vector parameter, Vector slope, Vector&, Vector& second) const {
    const Vector decayed = multiply_add(splat(step.weight_decay), parameter, slope);
    second = multiply_add(decayed, decayed, second);
    const Vector numerator = step.decays_numerator ? decayed : slope;
    return parameter - step.learning_rate * (numerator / (square_root(second) + step.epsilon));
  }
};

template <class Master, class Moment, class Gradient, class Model, class Rule>
void update_as(const Rule& rule, const UpdateTensors& tensors, std::int64_t count) {
  auto* master = static_cast<Master*>(tensors.master);
  auto* m = static_cast<Moment*>(tensors.m);
  auto* v = static_cast<Moment*>(tensors.v);
  const auto* gradient = static_cast<const Gradient*>(tensors.gradient);
  auto* model = static_cast<Model*>(tensors.model);
  const float gradient_scale = rule.step.gradient_scale;
  for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
    for_vectors(begin, end, [&](std::int64_t i, auto extent) {
      Vector first{};
      Vector second{};
      if (Rule::has_first) first = load(m + i, extent);
      if (Rule::has_second) second = load(v + i, extent);
      const Vector parameter = rule(load(master + i, extent),
                                    load(gradient + i, extent) * gradient_scale, first, second);
      if (Rule::has_first) store(m + i, first, extent);
      if (Rule::has_second) store(v + i, second, extent);
      store(master + i, parameter, extent);
      if (sizeof(Model) < sizeof(float)) store(model + i, parameter, extent);
    });
  });
}

template <class Master, class Rule>
void update_narrow(const Rule& rule, const UpdateTensors& tensors, std::int64_t count) {
  if (tensors.moment_type == DType::f32) {
    update_as<Master, float, Master, float>(rule, tensors, count);
  } else {
    update_as<Master, Master, Master, float>(rule, tensors, count);
  }
}

template <class Rule>
void update(const Rule& rule, const UpdateTensors& tensors, std::int64_t count) {
  switch (tensors.master_type) {
    case DType::bf16:
      return update_narrow<Bfloat16>(rule, tensors, count);
    case DType::f16:
      return update_narrow<Float16>(rule, tensors, count);
    case DType::f32:
      break;
  }
  with_type(tensors.gradient_type, [&](auto gradient) {
    with_type(tensors.model_type, [&](auto model) {
      update_as<float, float, decltype(gradient), decltype(model)>(rule, tensors, count);
    });
  });
}

}  // namespace

void adam(const AdamStep& step, const UpdateTensors& tensors, std::int64_t count) {
  if (step.decoupled_decay) {
    update(AdamRule<true>{step}, tensors, count);
  } else {
    update(AdamRule<false>{step}, tensors, count);
  }
}

void lion(const LionStep& step, const UpdateTensors& tensors, std::int64_t count) {
  update(LionRule{step}, tensors, count);
}

void sgd(const SgdStep& step, const UpdateTensors& tensors, std::int64_t count) {
  if (tensors.m != nullptr) {
    update(SgdRule<true>{step}, tensors, count);
  } else {
    update(SgdRule<false>{step}, tensors, count);
  }
}

void adagrad(const AdagradStep& step, const UpdateTensors& tensors, std::int64_t count) {
  update(AdagradRule{step}, tensors, count);
}

}  // namespace dstune::kernels::DSTUNE_ISA
