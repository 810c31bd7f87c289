#pragma once
/// update(): a rule of common/optimizer.cpp for every element, one pass over memory.

#include "isa/launches.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class Rule>
struct Update {
  static constexpr int min_blocks = Rule::has_first && !Rule::has_second ? 4 : 0;

  Rule rule;
  Output master, m, v;
  Input gradient;
  Output model;                 ///< null: none
  const float* gradient_scale;  ///< null: the step's
  bool is_mixed;                ///< other types than the usual: see assume()

  DSTUNE_DEVICE DType type() const { return gradient.type; }
  DSTUNE_DEVICE void assume(DType of_gradient) {
    master.type = m.type = v.type = DType::f32;
    gradient.type = model.type = of_gradient;
  }

  template <int N>
  DSTUNE_DEVICE void at(std::int64_t i) const {
    Values<N> parameter = master.load<N>(i);
    Values<N> first{};
    Values<N> second{};
    if (Rule::has_first) first = m.load<N>(i);
    if (Rule::has_second) second = v.load<N>(i);
    const Values<N> slope = gradient.load<N>(i);
    const float factor = gradient_scale != nullptr ? *gradient_scale : rule.step.gradient_scale;
    for (int k = 0; k < N; ++k) {
      parameter.of[k] = rule(parameter.of[k], slope.of[k] * factor, first.of[k], second.of[k]);
    }
    if (Rule::has_first) m.store(i, first);
    if (Rule::has_second) v.store(i, second);
    master.store(i, parameter);
    if (model.data != nullptr) model.store(i, parameter);
  }
};

template <class Rule>
void update(const Rule& rule, const UpdateTensors& tensors, std::int64_t count) {
  // A model in f32 is the master itself.
  const bool has_model = tensors.master_type == DType::f32 && tensors.model_type != DType::f32;
  const bool has_moments = Rule::has_first || Rule::has_second;
  const bool is_mixed = tensors.master_type != DType::f32 ||
                        (has_moments && tensors.moment_type != DType::f32) ||
                        (has_model && tensors.model_type != tensors.gradient_type);
  const Update<Rule> body{rule,
                          {tensors.master, tensors.master_type},
                          {tensors.m, tensors.moment_type},
                          {tensors.v, tensors.moment_type},
                          {tensors.gradient, tensors.gradient_type},
                          {has_model ? tensors.model : nullptr, tensors.model_type},
                          tensors.gradient_scale,
                          is_mixed};
  for_elements(count, body,
               are_packed(tensors.master, tensors.m, tensors.v, tensors.gradient, body.model.data));
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
