#include "dstune/core/settings.hpp"

#include "dstune/base/text.hpp"

namespace dstune {

Settings::Settings() : presence_(knobs().size(), Presence::absent) {
  values_.reserve(knobs().size());
  for (const Knob& knob : knobs()) values_.push_back(default_value(knob));
}

std::size_t Settings::row_of(std::string_view pointer) const {
  const std::optional<std::size_t> row = knob_table().find(pointer);
  require(row.has_value(), "a key without a row in the table of knobs is asked for");
  if (presence_[*row] != Presence::absent) return *row;
  for (const std::size_t alias : knob_table().aliases(*row))
    if (presence_[alias] != Presence::absent) return alias;
  return *row;
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

std::optional<std::int64_t> Settings::integer(std::string_view pointer) const {
  const auto* const integer = std::get_if<std::int64_t>(&value(pointer));
  return integer == nullptr ? std::nullopt : std::optional(*integer);
}

std::string Settings::word(std::string_view pointer) const {
  const auto* const text = std::get_if<std::string>(&value(pointer));
  return text == nullptr ? "" : lower_case(*text);
}

int Settings::zero_stage() const {
  static const std::size_t row = knob_table().find("/zero_optimization/stage").value();
  return static_cast<int>(std::get<std::int64_t>(values_[row]));
}

std::vector<Setting> read_settings(const json::Node& node, json::Problems& problems) {
  std::vector<Setting> settings;
  knob_table().read(node, problems, [&](KeyReading reading) {
    const bool is_given = !reading.values.empty();
    settings.push_back({reading.row,
                        is_given ? std::move(reading.values.front().value)
                                 : knob_table().default_value(reading.row),
                        reading.presence});
  });
  return settings;
}

Settings read_config(const json::Node& node, json::Problems& problems) {
  Settings settings;
  settings.apply(read_settings(node, problems));
  for (const Violation& violation : violations_of(settings)) {
    const json::Document& document = node.document();
    problems.add(
        {document.file(), violation.pointer, document.line(violation.pointer), violation.message});
  }
  return settings;
}

TrainingConfig read_training_config(const json::Node& node, json::Problems& problems) {
  return training_config(read_config(node, problems));
}

}  // namespace dstune
