#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/core/settings.hpp"
#include "dstune/space/reference.hpp"
#include "reference/key_examples.hpp"
#include "reference/key_words.hpp"
#include "sections/sections.hpp"

namespace dstune {
namespace {

/// In the order of their enumerators.
constexpr std::array type_texts = {"boolean", "integer", "number", "text", "object", "list"};
constexpr std::array effect_texts = {"measured", "none", "not yet", "refused"};

std::string bound_text(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p62)
    return std::to_string(static_cast<std::int64_t>(value));
  return json::Value(value).dump();
}

std::string range_text(const Key& key) {
  constexpr double nearly_endless = 1e300;
  const bool has_low = key.low > -nearly_endless, has_high = key.high < nearly_endless;
  if (has_low && has_high)
    return fmt::format(", {} to {}", bound_text(key.low), bound_text(key.high));
  if (has_low) return ", at least " + bound_text(key.low);
  return has_high ? ", at most " + bound_text(key.high) : "";
}

std::string type_text(const Key& key) {
  std::string text = type_texts.at(static_cast<std::size_t>(key.type));
  if (key.type == KnobType::list && key.of_texts) text += " of texts";
  std::string words;
  for (const std::string_view word : choices_of(key.choices))
    words += fmt::format("{}`{}`", words.empty() ? "" : ", ", word);
  if (!words.empty()) text += ": " + words;
  return text + range_text(key) + (key.is_listable ? ", or a list of them" : "");
}

std::string default_text(const Key& key) {
  if (key.fallback == "null") return "";
  const json::Value value = json::Value::parse(key.fallback);
  return fmt::format("`{}`", value.is_structured() ? line_of(value) : key.fallback);
}

}  // namespace

std::string stages_of(const Knob& knob) {
  if (knob.stages == 0b1111) return "";
  std::vector<int> stages;
  for (int stage = 0; stage < 4; ++stage)
    if (knob.acts_at(stage)) stages.push_back(stage);
  return fmt::format("{}", fmt::join(stages, ", "));
}

std::string releases_of(const Knob& knob) {
  std::vector<std::string> parts;
  if (knob.since != Version{}) parts.push_back("from " + to_text(knob.since));
  if (knob.until != Version{}) parts.push_back("removed in " + to_text(knob.until));
  for (const FormerRow& former : knob.former) {
    if (!former.fallback.empty())
      parts.push_back(
          fmt::format("before {} default `{}`", to_text(former.before), former.fallback));
    if (former.low)
      parts.push_back(fmt::format(
          "before {} {}", to_text(former.before),
          std::isinf(*former.low) ? "any number" : "at least " + bound_text(*former.low)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

namespace {

/// Keys that have no row.
std::string others_text(const Key& key) {
  if (key.type != KnobType::object || key.closed) return "";
  if (key.closed_beside.empty()) return "taken, unchecked";
  const auto [name, words] = prerequisite_in(key.closed_beside);
  return fmt::format("refused if `{}` is {}, else taken, unchecked", name,
                     fmt::join(choices_of(words), ", "));
}

/// The types of all forms that every release has, by keys.json; a table of all has the last one.
std::string types_of(const Knob& knob) {
  std::vector<std::string> types;
  for (const Key& form : key_rows("deepspeed"))
    if (form.pointer == knob.pointer && form.type != knob.type && form.until == Version{})
      types.push_back(type_text(form));
  types.push_back(type_text(knob));
  return fmt::format("{}", fmt::join(types, "; or "));
}

/// A key of ZeRO is shown with the lowest stage at which it acts.
void add_stage(const Knob& knob, json::Value& document) {
  if (!knob.pointer.starts_with("/zero_optimization/") || knob.acts_at(0)) return;
  if (document["zero_optimization"].contains("stage")) return;
  json::Value section = {{"stage", std::countr_zero(knob.stages)}};
  section.update(document["zero_optimization"]);
  document["zero_optimization"] = std::move(section);
}

/// Empty where every value but the absent one is refused.
std::string example_text(const Knob& knob, const RowsBelow& rows) {
  const bool has_default = knob.fallback != "null" || knob.type == KnobType::object;
  if (knob.effect == KnobEffect::refused && !has_default) return "";
  json::Value document = example_document(knob, rows);
  add_stage(knob, document);
  return line_of(document);
}

KeyWords words_of(const Knob& knob) {
  const RowsBelow rows = [](std::string_view pointer) {
    std::vector<const Key*> below;
    for (const std::size_t row : every_knob().below(pointer))
      below.push_back(&every_knob().knobs()[row]);
    return below;
  };
  const std::string stages = stages_of(knob);
  return {.path = dotted(knob.pointer),
          .type = types_of(knob),
          .fallback = default_text(knob),
          .stages = stages.empty() ? "all" : stages,
          .releases = releases_of(knob),
          .effect = effect_texts.at(static_cast<std::size_t>(knob.effect)),
          .hint = std::string(knob.hint),
          .others = others_text(knob),
          .help = std::string(knob.help),
          .example = example_text(knob, rows)};
}

/// A key and all keys below it.
void add_below(std::size_t row, std::vector<KeyWords>& keys) {
  const Knob& knob = every_knob().knobs()[row];
  keys.push_back(words_of(knob));
  for (const std::size_t below : every_knob().below(knob.pointer)) add_below(below, keys);
}

/// `row`: the first form of a key.
KeyWords words_of(std::span<const SectionRow> all, const SectionRow& row) {
  const RowsBelow rows = [&](std::string_view pointer) {
    std::vector<const Key*> below;
    for (const SectionRow& each : all)
      if (parent_of(each.pointer) == pointer &&
          (below.empty() || below.back()->pointer != each.pointer))
        below.push_back(&each);
    return below;
  };
  KeyWords words;
  words.path = dotted(row.pointer);
  words.example = line_of(example_document(row, rows));
  for (const SectionRow& form : all) {
    if (form.pointer != row.pointer) continue;
    const bool is_first = words.help.empty();
    words.type += (is_first ? "" : "; or ") + type_text(form);
    words.help += is_first ? std::string(form.help) : ". " + capitalized(form.help);
    if (words.fallback.empty()) words.fallback = default_text(form);
  }
  return words;
}

KeyGroup group_of(std::span<const SectionRow> rows) {
  KeyGroup group{dotted(rows.front().pointer), dotted(rows.front().pointer), {}};
  std::string_view before;
  for (const SectionRow& row : rows) {
    if (row.pointer != before) group.keys.push_back(words_of(rows, row));
    before = row.pointer;
  }
  return group;
}

}  // namespace

std::vector<KeyGroup> key_groups() {
  std::vector<KeyGroup> groups{
      group_of(dstune_rows()), group_of(autotuning_rows()), {"DeepSpeed", "Top level", {}}};
  std::vector<KeyGroup> sections;
  for (const std::size_t row : every_knob().below("")) {
    const Knob& knob = every_knob().knobs()[row];
    if (every_knob().below(knob.pointer).empty()) {
      groups.back().keys.push_back(words_of(knob));
    } else {
      sections.push_back({"DeepSpeed", dotted(knob.pointer), {}});
      add_below(row, sections.back().keys);
    }
  }
  std::ranges::move(sections, std::back_inserter(groups));
  return groups;
}

std::vector<std::string> key_legend() {
  return {"The value of a DeepSpeed key may be a list of candidates.",
          "ZeRO stages: the key acts at these. A key without this line acts at all stages.",
          "DeepSpeed releases: the first that knows the key, the first that does not, and earlier "
          "defaults. A key without this line is known from 0.14.5 on.",
          "Effect: what the key does in the built-in step, the training step of dstune-mpi. It is "
          "`measured` if the key acts as in DeepSpeed, and `none` if the key changes nothing that "
          "is measured. It is `not yet` if the key acts in DeepSpeed alone. It is `refused` if the "
          "built-in step runs the default only; DeepSpeed's engine runs all values."};
}

}  // namespace dstune
