#include "dstune/core/settings.hpp"

#include "dstune/core/knob_value.hpp"

namespace dstune {

namespace {

std::size_t row_of(std::string_view pointer) {
  const Knob* const knob = find_knob(pointer);
  require(knob != nullptr, "a key without a row in the table of knobs is asked for");
  return static_cast<std::size_t>(knob - knobs().data());
}

}  // namespace

Settings::Settings() : presence_(knobs().size(), Presence::absent) {
  values_.reserve(knobs().size());
  for (const Knob& knob : knobs()) values_.push_back(default_value(knob));
}

void Settings::apply(const std::vector<Setting>& changes) {
  for (const Setting& change : changes) {
    values_[change.row] = change.value;
    presence_[change.row] = change.presence;
  }
}

const KnobValue& Settings::value(std::string_view pointer) const {
  return values_[row_of(pointer)];
}

bool Settings::is_given(std::string_view pointer) const {
  return is_given(row_of(pointer));
}

bool Settings::is_there(std::string_view pointer) const {
  const Presence presence = presence_[row_of(pointer)];
  return presence == Presence::automatic || presence == Presence::given;
}

bool Settings::is_set(std::string_view pointer) const {
  return is_set(row_of(pointer));
}

bool Settings::is_set(std::size_t row) const {
  const Presence presence = presence_[row];
  return presence == Presence::null || presence == Presence::given;
}

bool Settings::is_written(std::string_view pointer) const {
  return presence_[row_of(pointer)] != Presence::absent;
}

bool Settings::is_on(std::string_view pointer) const {
  const auto* const flag = std::get_if<bool>(&value(pointer));
  return flag != nullptr && *flag;
}

double Settings::number(std::string_view pointer) const {
  const KnobValue& found = value(pointer);
  if (const auto* integer = std::get_if<std::int64_t>(&found)) return static_cast<double>(*integer);
  return std::get<double>(found);
}

std::string Settings::word(std::string_view pointer) const {
  const auto* const text = std::get_if<std::string>(&value(pointer));
  return text == nullptr ? "" : lower_case(*text);
}

int Settings::zero_stage() const {
  static const std::size_t row = row_of("/zero_optimization/stage");
  return static_cast<int>(std::get<std::int64_t>(values_[row]));
}

TrainingConfig read_training_config(const json::Node& node, json::Problems& problems) {
  Settings settings;
  settings.apply(read_settings(node, problems));
  for (const Objection& objection : objections_to(settings)) {
    const json::Document& document = node.document();
    problems.add(
        {document.file(), objection.pointer, document.line(objection.pointer), objection.message});
  }
  return training_config(settings);
}

}  // namespace dstune
