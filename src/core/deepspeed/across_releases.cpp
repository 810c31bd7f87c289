/// Configs that mean the same in several releases of DeepSpeed.

#include <algorithm>

#include <fmt/format.h>

#include "dstune/core/settings.hpp"

namespace dstune {

namespace {

using json::Value;

/// Something in it is switched on, or may be.
bool switches_something_on(const Value& section) {
  if (!section.is_object()) return false;
  for (const auto& [key, value] : section.items()) {
    const bool is_on =
        key == "enabled" ? value != false && value != "auto" : switches_something_on(value);
    if (is_on) return true;
  }
  return false;
}

/// In the releases that know the key.
bool has_effect(const Knob& knob, const Value& value) {
  if (value.is_null() || value == "auto") return false;
  if (knob.type != KnobType::object) return value != Value::parse(knob.fallback);
  return knob.effect == KnobEffect::refused || !value.is_object() || switches_something_on(value);
}

/// Another default in another release, and an effect on what was measured; or perhaps another one
/// in `version` than its table says.
bool is_written_out(const Knob& knob, Version version) {
  return std::ranges::any_of(knob.former, [&](const FormerRow& former) {
    return !former.fallback.empty() &&
           (knob.effect != KnobEffect::inert || is_unsure(version, former.before));
  });
}

/// Offloading or a precision is on, or may be.
bool is_in_use(const Value& section) {
  const auto device = section.find("device");
  const auto enabled = section.find("enabled");
  const bool is_off = enabled != section.end() && *enabled == false;
  return !is_off && (device == section.end() || *device != "none");
}

}  // namespace

std::vector<std::string> drop_without_effect(const KnobTable& table, Value& config) {
  std::vector<std::string> notes;
  for (const Knob& knob : every_knob().knobs()) {
    if (!table.was_removed(knob.pointer)) continue;
    const Value::json_pointer place{std::string(knob.pointer)};
    const Value::json_pointer above = place.parent_pointer();
    if (!config.contains(place) || !config[above].is_object()) continue;
    if (has_effect(knob, config[place])) continue;
    config[above].erase(place.back());
    notes.push_back(
        fmt::format("{} is left out of the answer: it has no effect, and DeepSpeed {} removed it",
                    dotted(knob.pointer), to_text(knob.until)));
  }
  return notes;
}

std::vector<std::string> write_out_defaults(Version version, int zero_stage, Value& config) {
  std::vector<std::string> written;
  const KnobTable& table = knob_table(version);
  for (const Knob& knob : table.knobs()) {
    if (!knob.alias_of.empty() && parent_of(knob.alias_of) == parent_of(knob.pointer)) continue;
    if (!is_written_out(knob, version) || !knob.acts_at(zero_stage)) continue;
    const Value::json_pointer place{std::string(knob.pointer)};
    const Value::json_pointer above = place.parent_pointer();
    if (!config.contains(above) || !config[above].is_object() || config.contains(place)) continue;
    if (!above.empty() && !is_in_use(config[above])) continue;
    config[place] = Value::parse(knob.fallback);
    written.emplace_back(knob.pointer);
  }
  return written;
}

}  // namespace dstune
