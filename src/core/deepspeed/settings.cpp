#include "dstune/core/settings.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <ranges>

#include <fmt/format.h>

#include "deepspeed/knobs.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// The releases of the section that a row stands in are the row's, too.
void narrow(Knob& knob, const std::vector<Knob>& before) {
  std::optional<Version> since, until;
  for (const Knob& section : before) {
    if (section.pointer != parent_of(knob.pointer)) continue;
    // A section may have several forms, one after the other.
    since = since ? std::min(*since, section.since) : section.since;
    until = until && *until == Version{} ? until : section.until;
  }
  if (since) knob.since = std::max(knob.since, *since);
  if (until && *until != Version{})
    knob.until = knob.until == Version{} ? *until : std::min(knob.until, *until);
}

std::vector<Knob> narrowed(const std::vector<Knob>& rows) {
  std::vector<Knob> all;
  for (Knob knob : rows) {
    narrow(knob, all);
    all.push_back(std::move(knob));
  }
  return all;
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

bool is_among(std::string_view pointer, const std::vector<Knob>& rows) {
  return std::ranges::find(rows, pointer, &Knob::pointer) != rows.end();
}

/// The last of several forms, which is known since the first of them.
std::vector<Knob> last_forms(const std::vector<Knob>& rows) {
  std::vector<Knob> last;
  for (const Knob& knob : std::ranges::reverse_view(rows)) {
    const auto later = std::ranges::find(last, knob.pointer, &Knob::pointer);
    if (later == last.end())
      last.push_back(knob);
    else
      later->since = std::min(later->since, knob.since);
  }
  std::ranges::reverse(last);
  return last;
}

/// Nothing: of all releases.
const KnobTable& table_of(std::optional<Version> release) {
  static std::mutex mutex;
  static std::map<std::optional<Version>, KnobTable> tables;
  const std::lock_guard lock(mutex);
  static const std::vector<Knob> rows = narrowed(all_knobs());
  static const std::vector<Knob> every = with_aliases(last_forms(rows));
  const auto found = tables.find(release);
  if (found != tables.end()) return found->second;
  std::vector<Knob> known = release ? with_aliases(rows_of(*release, rows)) : every;
  std::vector<Knob> others;
  std::ranges::copy_if(every, std::back_inserter(others),
                       [&](const Knob& knob) { return !is_among(knob.pointer, known); });
  const Version named = release.value_or(newest_release);
  return tables.try_emplace(release, named, std::move(known), others).first->second;
}

}  // namespace

KnobTable::KnobTable(Version release, std::vector<Knob> knobs, const std::vector<Knob>& others)
    : KeyTable({knobs.begin(), knobs.end()}, KeyTable::Order::of_rows,
               {others.begin(), others.end()}, release),
      release_(release),
      knobs_(std::move(knobs)),
      stage_(find("/zero_optimization/stage").value()) {
  for (std::size_t row = 0; row < knobs_.size(); ++row) {
    const Knob& knob = knobs_[row];
    if (knob.apply != nullptr) acting_.push_back(row);
    if (knob.effect == KnobEffect::refused) refused_.push_back(row);
    if (!knob.needs.empty()) needing_.push_back(row);
    if (!knob.alias_of.empty() && !knob.takes_all_names) other_names_.push_back(row);
    const KnobValue& usual = default_value(row);
    if (knob.apply != nullptr && !std::holds_alternative<std::monostate>(usual))
      knob.apply(usual_, usual);
  }
}

const Knob* KnobTable::find_knob(std::string_view pointer) const {
  const auto row = find(pointer);
  return row ? &knobs_[*row] : nullptr;
}

const KnobValue& KnobTable::default_value(const Knob& knob) const {
  return default_value(static_cast<std::size_t>(&knob - knobs_.data()));
}

const KnobTable& knob_table(Version version) {
  return table_of(known_release(version));
}

const KnobTable& every_knob() {
  static const KnobTable& all = table_of(std::nullopt);
  return all;
}

Settings::Settings(const KnobTable& table)
    : table_(&table), presence_(table.knobs().size(), Presence::absent) {
  values_.reserve(presence_.size());
  for (std::size_t row = 0; row < presence_.size(); ++row)
    values_.push_back(table.default_value(row));
}

std::optional<std::size_t> Settings::row_of(std::string_view pointer) const {
  const std::optional<std::size_t> row = table_->find(pointer);
  if (!row || presence_[*row] != Presence::absent) return row;
  for (const std::size_t alias : table_->aliases(*row))
    if (presence_[alias] != Presence::absent) return alias;
  return row;
}

void Settings::apply(const std::vector<Setting>& changes) {
  for (const Setting& change : changes) {
    values_[change.row] = change.value;
    presence_[change.row] = change.presence;
    if (unread_.empty() && change.is_read) continue;
    unread_.resize(values_.size());
    unread_[change.row] = !change.is_read;
  }
}

const KnobValue& Settings::value(std::string_view pointer) const {
  if (const auto row = row_of(pointer)) return value(*row);
  const auto other = every_knob().find(pointer);
  require(other.has_value(), "a key without a row in the table of knobs is asked for");
  return every_knob().default_value(*other);
}

Presence Settings::presence(std::string_view pointer) const {
  const auto row = row_of(pointer);
  return row ? presence_[*row] : Presence::absent;
}

bool Settings::is_given(std::string_view pointer) const {
  const auto row = row_of(pointer);
  return row && is_given(*row);
}

bool Settings::is_there(std::string_view pointer) const {
  return presence(pointer) == Presence::automatic || is_given(pointer);
}

bool Settings::is_set(std::string_view pointer) const {
  return presence(pointer) == Presence::null || is_given(pointer);
}

bool Settings::is_set(std::size_t row) const {
  note_use(row);
  return presence_[row] == Presence::null || presence_[row] == Presence::given;
}

bool Settings::is_written(std::string_view pointer) const {
  return presence(pointer) != Presence::absent;
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
  return static_cast<int>(std::get<std::int64_t>(value(table_->stage())));
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

std::vector<Setting> read_settings(const KnobTable& table, const json::Node& node,
                                   json::Problems& problems, const AutoValues& automatic,
                                   json::Problems* unchecked) {
  std::vector<Setting> settings;
  const auto take = [&](KeyReading reading) {
    const auto filled_in = automatic.find(table.knobs()[reading.row].pointer);
    if (reading.presence == Presence::automatic && filled_in != automatic.end()) {
      settings.push_back({reading.row, filled_in->second, Presence::given, reading.is_read});
      return;
    }
    const bool is_given = !reading.values.empty();
    settings.push_back(
        {reading.row,
         is_given ? std::move(reading.values.front().value) : table.default_value(reading.row),
         reading.presence, reading.is_read});
  };
  table.read(node, problems, take, unchecked);
  return settings;
}

Settings read_config(const KnobTable& table, const json::Node& node, json::Problems& problems,
                     const AutoValues& automatic) {
  Settings settings(table);
  settings.apply(read_settings(table, node, problems, automatic));
  for (const Violation& violation : violations_of(settings)) {
    const json::Document& document = node.document();
    problems.add(
        {document.file(), violation.pointer, document.line(violation.pointer), violation.message});
  }
  return settings;
}

}  // namespace dstune
