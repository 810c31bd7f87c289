#include "dstune/core/settings.hpp"

#include <deque>

#include <fmt/format.h>

#include "deepspeed/knob_rows.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

std::string_view rows::kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

namespace {

using rows::kept;

/// Every pointer from the document's root on.
std::vector<Knob> with_whole_pointers(std::vector<Knob> rows) {
  std::string_view section;
  for (Knob& knob : rows) {
    if (!knob.pointer.starts_with('/'))
      knob.pointer = kept(fmt::format("{}/{}", section, knob.pointer));
    else if (knob.type == KnobType::object)
      section = knob.pointer;
  }
  return rows;
}

/// The rows of `knob`, the last of `rows`' sections or keys, under another name.
void add_alias(std::vector<Knob>& rows, const std::vector<Knob>& made_from, std::string_view alias,
               bool is_deprecated) {
  const std::string_view first = made_from.front().pointer;
  const std::string_view pointer = kept(fmt::format("{}/{}", parent_of(first), alias));
  for (const Knob& knob : made_from) {
    Knob other = knob;
    other.alias_of = knob.pointer;
    other.pointer = kept(fmt::format("{}{}", pointer, knob.pointer.substr(first.size())));
    rows.push_back(other);
  }
  Knob& head = rows[rows.size() - made_from.size()];
  head.help =
      kept(fmt::format("{} name of {}", is_deprecated ? "deprecated" : "another", last_key(first)));
  head.aliases = head.deprecated = "";
  // A rule of its own says what is wrong with an older name.
  if (is_deprecated) head.takes_all_names = true;
  // DeepSpeed looks for keys in a section that has another name at once.
  if (head.type == KnobType::object) {
    head.fallback = "{}";
    head.takes_null = false;
  }
}

/// Each row with other names is followed by theirs, behind all that stands below it.
std::vector<Knob> with_aliases(const std::vector<Knob>& rows) {
  std::vector<Knob> all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    all.push_back(rows[row]);
    if (rows[row].aliases.empty()) continue;
    std::vector<Knob> below = {rows[row]};
    const std::string inside = fmt::format("{}/", rows[row].pointer);
    while (row + 1 < rows.size() && rows[row + 1].pointer.starts_with(inside)) {
      below.push_back(rows[++row]);
      all.push_back(rows[row]);
    }
    for (const std::string_view alias : choices_of(below.front().aliases))
      add_alias(all, below, alias, false);
    for (const std::string_view alias : choices_of(below.front().deprecated))
      add_alias(all, below, alias, true);
  }
  return all;
}

}  // namespace

std::span<const Knob> knobs() {
  static const std::vector<Knob> all = with_aliases(rows_of(
      deepspeed_version,
      with_whole_pointers(rows::joined(rows::training(), rows::zero(), rows::beside_training()))));
  return all;
}

const KeyTable& knob_table() {
  static const KeyTable table({knobs().begin(), knobs().end()}, KeyTable::Order::of_rows);
  return table;
}

const Knob* find_knob(std::string_view pointer) {
  const auto row = knob_table().find(pointer);
  return row ? &knobs()[*row] : nullptr;
}

const KnobValue& default_value(const Knob& knob) {
  return knob_table().default_value(static_cast<std::size_t>(&knob - knobs().data()));
}

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

AutoValues auto_values(std::optional<Precision> precision,
                       std::optional<std::int64_t> hidden_size) {
  AutoValues values;
  if (precision) {
    values["/fp16/enabled"] = *precision == Precision::fp16;
    for (const char* pointer : {"/bf16/enabled", "/bfloat16/enabled"})
      values[pointer] = *precision == Precision::bf16;
  }
  if (hidden_size) {
    const std::int64_t square = *hidden_size * *hidden_size;
    values["/zero_optimization/reduce_bucket_size"] = square;
    values["/zero_optimization/stage3_prefetch_bucket_size"] = square * 9 / 10;
    values["/zero_optimization/stage3_param_persistence_threshold"] = 10 * *hidden_size;
    values["/gradient_clipping"] = 1.0;
  }
  return values;
}

std::vector<Setting> read_settings(const json::Node& node, json::Problems& problems,
                                   const AutoValues& automatic) {
  std::vector<Setting> settings;
  knob_table().read(node, problems, [&](KeyReading reading) {
    const auto filled_in = automatic.find(knobs()[reading.row].pointer);
    if (reading.presence == Presence::automatic && filled_in != automatic.end()) {
      settings.push_back({reading.row, filled_in->second, Presence::given});
      return;
    }
    const bool is_given = !reading.values.empty();
    settings.push_back({reading.row,
                        is_given ? std::move(reading.values.front().value)
                                 : knob_table().default_value(reading.row),
                        reading.presence});
  });
  return settings;
}

Settings read_config(const json::Node& node, json::Problems& problems,
                     const AutoValues& automatic) {
  Settings settings;
  settings.apply(read_settings(node, problems, automatic));
  for (const Violation& violation : violations_of(settings)) {
    const json::Document& document = node.document();
    problems.add(
        {document.file(), violation.pointer, document.line(violation.pointer), violation.message});
  }
  return settings;
}

}  // namespace dstune
