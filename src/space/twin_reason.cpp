#include "twin_reason.hpp"

#include <fmt/format.h>

#include "dstune/core/knobs.hpp"

namespace dstune {

namespace {

/// Why a knob makes no difference to the step.
std::string no_effect(const Knob& knob, int zero_stage) {
  if (!knob.acts_at(zero_stage)) return fmt::format("has no effect at stage {}", zero_stage);
  if (knob.effect == KnobEffect::inert) return "has no effect on a step";
  if (knob.effect == KnobEffect::not_built) return "is not part of the step measured here yet";
  return "makes no difference here";
}

}  // namespace

std::string twin_reason(const Product& product, const std::vector<std::size_t>& digits,
                        const std::vector<std::size_t>& others, int zero_stage) {
  std::string reason;
  for (std::size_t index = 0; index < digits.size(); ++index) {
    const auto& dimension = product.dimensions[index];
    if (dimension.candidates[digits[index]] == dimension.candidates[others[index]]) continue;
    const std::string name = dimension.pointer.substr(dimension.pointer.rfind('/') + 1);
    const Knob* const knob = find_knob(dimension.pointer);
    reason += reason.empty() ? "" : ", ";
    reason += name + " " + (knob == nullptr ? "is not known here" : no_effect(*knob, zero_stage));
  }
  return reason;
}

}  // namespace dstune
