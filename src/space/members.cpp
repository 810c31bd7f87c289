#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "dstune/core/settings.hpp"
#include "sections/products.hpp"

namespace dstune {

namespace {

struct Reset {
  const Knob* knob;
  KnobValue value;
};

/// The default, or for a knob without one any value of its type: which one does not matter where it
/// does not act.
KnobValue any_value(const Knob& knob) {
  const KnobValue& usual = every_knob().default_value(knob);
  if (!std::holds_alternative<std::monostate>(usual)) return usual;
  switch (knob.type) {
    case KnobType::boolean:
      return false;
    case KnobType::integer:
      return std::int64_t{0};
    case KnobType::number:
      return 0.0;
    case KnobType::text:
      return std::string();
    default:
      return {};
  }
}

std::vector<Reset> resets_at(int stage) {
  std::vector<Reset> resets;
  for (const Knob& knob : every_knob().knobs()) {
    if (knob.apply != nullptr && !knob.acts_at(stage)) resets.push_back({&knob, any_value(knob)});
  }
  return resets;
}

/// Written out, it is what DeepSpeed takes anyway.
bool is_gradients_own(CommunicationType type, Precision precision) {
  return (type == CommunicationType::fp32 && precision == Precision::fp32) ||
         (type == CommunicationType::bf16 && precision == Precision::bf16) ||
         (type == CommunicationType::fp16 && precision == Precision::fp16);
}

/// Says why a knob makes no difference to the step.
std::string no_effect(const Knob& knob, int zero_stage) {
  if (!knob.acts_at(zero_stage)) return fmt::format("has no effect at stage {}", zero_stage);
  if (knob.effect == KnobEffect::inert) return "has no effect on a step";
  if (knob.effect == KnobEffect::not_built) return "is not part of the step measured here yet";
  return "makes no difference here";
}

std::int64_t given_ranks(const Settings& settings, const char* pointer) {
  if (!settings.is_given(pointer)) return 1;
  return std::max<std::int64_t>(1, settings.integer(pointer).value_or(1));
}

}  // namespace

TrainingConfig effective_config(const TrainingConfig& config) {
  static const std::array<std::vector<Reset>, 4> resets = {resets_at(0), resets_at(1), resets_at(2),
                                                           resets_at(3)};
  TrainingConfig effective = config;
  if (config.zero_stage < 0 || config.zero_stage > 3) return effective;
  for (const auto& reset : resets[config.zero_stage]) reset.knob->apply(effective, reset.value);
  if (is_gradients_own(effective.communication_data_type, effective.precision))
    effective.communication_data_type = CommunicationType::as_gradients;
  return effective;
}

Digest fingerprint(const TrainingConfig& config, const GroupShape& shape) {
  return digest128(fmt::format("{}/{}/", shape.num_gpus, shape.num_nodes) + bytes_of(config));
}

std::int64_t sequence_ranks(const Settings& settings) {
  return given_ranks(settings, "/sequence_parallel_size");
}

std::int64_t tensor_ranks(const Settings& settings) {
  return given_ranks(settings, "/tensor_parallel/autotp_size");
}

bool is_read_here(const KnobTable& table, const Dimension& dimension) {
  if (table.find_knob(dimension.pointer) == nullptr) return false;
  for (const auto& said : dimension.settings)
    for (const Setting& setting : said) {
      const Knob& knob = table.knobs()[setting.row];
      // The section's members have rows of their own.
      const bool is_section = knob.type == KnobType::object && !table.below(knob.pointer).empty();
      if (setting.presence != Presence::absent && !is_section && knob.apply == nullptr)
        return false;
    }
  return true;
}

std::string twin_reason(const Product& product, const std::vector<std::size_t>& digits,
                        const std::vector<std::size_t>& others, int zero_stage) {
  std::string reason;
  for (std::size_t index = 0; index < digits.size(); ++index) {
    const auto& dimension = product.dimensions[index];
    if (dimension.candidates[digits[index]] == dimension.candidates[others[index]]) continue;
    const std::string name = dimension.pointer.substr(dimension.pointer.rfind('/') + 1);
    const Knob* const knob = every_knob().find_knob(dimension.pointer);
    reason += reason.empty() ? "" : ", ";
    reason += name + " " + (knob == nullptr ? "is not known here" : no_effect(*knob, zero_stage));
  }
  return reason;
}

}  // namespace dstune
