#include "dstune/core/knobs.hpp"

#include <deque>

#include <fmt/format.h>

#include "deepspeed/knob_rows.hpp"

namespace dstune {

namespace {

/// A text that lives as long as the program.
std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
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
  static const std::vector<Knob> all = [] {
    std::vector<Knob> joined = rows::training();
    for (const std::vector<Knob>& part : {rows::zero(), rows::beside_training()})
      joined.insert(joined.end(), part.begin(), part.end());
    return with_aliases(rows_of(deepspeed_version, joined));
  }();
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

bool is_converted(const Knob& knob) {
  return knob_table().is_converted(knob);
}

const KnobValue& default_value(const Knob& knob) {
  return knob_table().default_value(static_cast<std::size_t>(&knob - knobs().data()));
}

}  // namespace dstune
