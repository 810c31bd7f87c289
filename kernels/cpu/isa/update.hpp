#pragma once
/// update(): a rule of common/optimizer.cpp for every element.

#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

template <class Master, class Moment, class Gradient, class Model, class Rule>
void update_as(const Rule& rule, const UpdateTensors& tensors, std::int64_t count) {
  auto* master = static_cast<Master*>(tensors.master);
  auto* m = static_cast<Moment*>(tensors.m);
  auto* v = static_cast<Moment*>(tensors.v);
  const auto* gradient = static_cast<const Gradient*>(tensors.gradient);
  auto* model = static_cast<Model*>(tensors.model);
  const float gradient_scale =
      tensors.gradient_scale != nullptr ? *tensors.gradient_scale : rule.step.gradient_scale;
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

template <class Rule>
void update(const Rule& rule, const UpdateTensors& tensors, std::int64_t count) {
  if (tensors.master_type == DType::f32) {
    return with_type(tensors.gradient_type, [&](auto gradient) {
      with_type(tensors.model_type, [&](auto model) {
        update_as<float, float, decltype(gradient), decltype(model)>(rule, tensors, count);
      });
    });
  }
  with_type(tensors.master_type, [&](auto master) {
    using Master = decltype(master);
    if (tensors.moment_type == DType::f32) {
      update_as<Master, float, Master, float>(rule, tensors, count);
    } else {
      update_as<Master, Master, Master, float>(rule, tensors, count);
    }
  });
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
