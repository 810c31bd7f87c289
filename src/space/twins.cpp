#include <array>
#include <bit>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "dstune/core/knobs.hpp"
#include "members.hpp"

namespace dstune {

namespace {

struct Reset {
  const Knob* knob;
  KnobValue value;
};

/// The default, or for a knob without one any value of its type: which one does not matter where it
/// does not act.
KnobValue any_value(const Knob& knob) {
  const KnobValue& usual = default_value(knob);
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
  for (const auto& knob : knobs()) {
    if (knob.apply != nullptr && !knob.acts_at(stage)) resets.push_back({&knob, any_value(knob)});
  }
  return resets;
}

/// Written out, it is what DeepSpeed takes anyway.
bool is_gradients_own(CommunicationType type, Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return type == CommunicationType::fp32;
    case Precision::bf16:
      return type == CommunicationType::bf16;
    case Precision::fp16:
      return type == CommunicationType::fp16;
  }
  return false;
}

/// Two streams of 64 bits, each value mixed in by a multiplication and a shift (the finisher of
/// MurmurHash3, Appleby 2011).
class Mixer {
 public:
  void add(std::string_view text) {
    mix(text.size());
    for (const char c : text) mix(static_cast<unsigned char>(c));
  }
  void add(double value) { mix(std::bit_cast<std::uint64_t>(value)); }
  template <class Value>
  requires std::is_enum_v<Value> || std::is_integral_v<Value>
  void add(Value value) { mix(static_cast<std::uint64_t>(value)); }
  [[nodiscard]] Fingerprint result() const { return {finished(high_), finished(low_)}; }

 private:
  static std::uint64_t finished(std::uint64_t bits) {
    bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccdULL;
    bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return bits ^ bits >> 33;
  }
  void mix(std::uint64_t value) {
    high_ = finished(high_ + 0x9e3779b97f4a7c15ULL + value);
    low_ = finished((low_ ^ value) * 0x2545f4914f6cdd1dULL + 1);
  }

  std::uint64_t high_ = 0, low_ = 0;
};

/// Why a knob makes no difference to the step.
std::string no_effect(const Knob& knob, int zero_stage) {
  if (!knob.acts_at(zero_stage)) return fmt::format("has no effect at stage {}", zero_stage);
  if (knob.effect == KnobEffect::inert) return "has no effect on a step";
  if (knob.effect == KnobEffect::not_built) return "is not part of the step measured here yet";
  return "makes no difference here";
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

Fingerprint fingerprint(std::string_view text) {
  Mixer mixer;
  mixer.add(text);
  return mixer.result();
}

Fingerprint fingerprint(const TrainingConfig& config, const GroupShape& shape) {
  Mixer mixer;
  for_each_member(config, [&](const char*, const auto& member) { mixer.add(member); });
  mixer.add(shape.num_gpus);
  mixer.add(shape.num_nodes);
  return mixer.result();
}

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
