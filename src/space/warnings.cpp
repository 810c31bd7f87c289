#include <fmt/format.h>

#include "dstune/core/knobs.hpp"
#include "sections.hpp"

namespace dstune {

namespace {

void warn_of_unmeasured(const json::Node& node, std::vector<std::string>& warnings) {
  if (node.is_object()) {
    for (const auto& key : node.keys()) warn_of_unmeasured(*node.find(key), warnings);
    return;
  }
  const Knob* const knob = find_knob(node.pointer());
  if (knob == nullptr || knob->effect != KnobEffect::not_built) return;
  const bool is_only_one = node.is_array() && node.value().size() == 1;
  const json::Value& value = is_only_one ? node.value().front() : node.value();
  if (value.is_null() || value == "auto" || value == json::Value::parse(knob->fallback)) return;
  warnings.push_back(fmt::format(
      "{} acts in DeepSpeed but is not part of the step measured here yet: it stays in the answer",
      node.pointer()));
}

}  // namespace

std::vector<std::string> find_warnings(const json::Node& ds_config) {
  std::vector<std::string> warnings;
  for (const auto& key : ds_config.keys()) {
    const auto node = *ds_config.find(key);
    if (find_knob(node.pointer()) == nullptr) {
      warnings.push_back(node.pointer() +
                         " is no key that DeepSpeed 0.19.6 knows: it passes through unchecked");
    } else {
      warn_of_unmeasured(node, warnings);
    }
  }
  return warnings;
}

}  // namespace dstune
