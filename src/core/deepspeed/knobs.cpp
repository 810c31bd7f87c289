#include "dstune/core/knobs.hpp"

#include <unordered_map>

#include "deepspeed/knob_rows.hpp"

namespace dstune {

std::span<const Knob> knobs() {
  static const std::vector<Knob> all = [] {
    std::vector<Knob> joined;
    for (const std::span<const Knob> part :
         {rows::engine(), rows::optimizer(), rows::scheduler(), rows::precision(),
          rows::zero_stage(), rows::zero_offload(), rows::tools(), rows::features(), rows::data()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return all;
}

namespace {

KnobValue parse_default(const Knob& knob) {
  const json::Value value = json::Value::parse(knob.fallback);
  if (value.is_null()) return {};
  switch (knob.type) {
    case KnobType::boolean:
      return value.get<bool>();
    case KnobType::integer:
      return value.get<std::int64_t>();
    case KnobType::number:
      return value.get<double>();
    case KnobType::text:
      return value.get<std::string>();
    default:
      return {};
  }
}

}  // namespace

const KnobValue& default_value(const Knob& knob) {
  static const std::vector<KnobValue> defaults = [] {
    std::vector<KnobValue> parsed;
    for (const Knob& each : knobs()) parsed.push_back(parse_default(each));
    return parsed;
  }();
  return defaults.at(static_cast<std::size_t>(&knob - knobs().data()));
}

const Knob* find_knob(std::string_view pointer) {
  static const std::unordered_map<std::string_view, const Knob*> rows_by_pointer = [] {
    std::unordered_map<std::string_view, const Knob*> found;
    for (const Knob& knob : knobs()) found.emplace(knob.pointer, &knob);
    return found;
  }();
  const auto found = rows_by_pointer.find(pointer);
  return found == rows_by_pointer.end() ? nullptr : found->second;
}

bool is_converted(const Knob& knob) {
  const Knob* const section = find_knob(knob.pointer.substr(0, knob.pointer.rfind('/')));
  return section != nullptr && section->model;
}

}  // namespace dstune
