#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/core/settings.hpp"
#include "dstune/space/reference.hpp"
#include "reference/key_words.hpp"
#include "sections/sections.hpp"

namespace dstune {
namespace {

/// In the order of their enumerators.
constexpr std::array type_texts = {"boolean", "integer", "number", "text", "object", "list"};
constexpr std::array effect_texts = {"measured", "none", "not yet", "refused"};

template <class Enum>
std::string text_in(const auto& all_texts, Enum value) {
  return all_texts.at(static_cast<std::size_t>(value));
}

std::string bound_text(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p62)
    return std::to_string(static_cast<std::int64_t>(value));
  return json::Value(value).dump();
}

std::string range_text(const Key& knob) {
  std::string text;
  for (const std::string_view word : choices_of(knob.choices))
    text += fmt::format("{}`{}`", text.empty() ? "" : ", ", word);
  if (!text.empty()) return text;
  const bool has_low = !std::isinf(knob.low), has_high = !std::isinf(knob.high);
  if (has_low && has_high) return bound_text(knob.low) + " to " + bound_text(knob.high);
  if (has_low) return "from " + bound_text(knob.low);
  if (has_high) return "to " + bound_text(knob.high);
  return "";
}

std::string default_text(const Key& knob) {
  return knob.fallback == "null" ? "" : fmt::format("`{}`", knob.fallback);
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
  if (knob.until != Version{}) parts.push_back("gone in " + to_text(knob.until));
  for (const FormerRow& former : knob.former) {
    if (!former.fallback.empty())
      parts.push_back(fmt::format("before {} `{}`", to_text(former.before), former.fallback));
    if (former.low)
      parts.push_back(
          fmt::format("before {} {}", to_text(former.before),
                      std::isinf(*former.low) ? "any" : "from " + bound_text(*former.low)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

namespace {

/// `section`: a pointer.
std::string path_of(std::string_view section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", dotted(section), name);
}

/// The rows of a section of the DeepSpeed config, elements of its lists among them.
KeyGroup deepspeed_group(std::string title, std::string_view section) {
  KeyGroup group{"DeepSpeed", std::move(title), {}};
  for (const std::size_t row : every_knob().below(section)) {
    const Knob& knob = every_knob().knobs()[row];
    const std::string name(last_key(knob.pointer));
    const std::string stages = stages_of(knob);
    group.keys.push_back({.path = path_of(section, name),
                          .name = name,
                          .type = text_in(type_texts, knob.type),
                          .fallback = default_text(knob),
                          .range = range_text(knob),
                          .stages = stages.empty() ? "all" : stages,
                          .releases = releases_of(knob),
                          .effect = text_in(effect_texts, knob.effect),
                          .help = std::string(knob.help)});
  }
  return group;
}

KeyGroup section_group(std::span<const SectionRow> rows) {
  const std::string_view section = rows.front().pointer;
  KeyGroup group{dotted(section), "", {}};
  for (const SectionRow& row : rows.subspan(1)) {
    const std::string name = dotted(row.pointer.substr(section.size()));
    group.keys.push_back(
        {.path = path_of(section, name),
         .name = name,
         .type = text_in(type_texts, row.type) + (row.is_listable ? ", or a list of them" : ""),
         .fallback = default_text(row),
         .range = range_text(row),
         .stages = "",
         .releases = "",
         .effect = "",
         .help = std::string(row.help)});
  }
  return group;
}

}  // namespace

std::vector<KeyGroup> key_groups() {
  std::vector<KeyGroup> groups{section_group(dstune_rows()), section_group(autotuning_rows()),
                               deepspeed_group("Top level", "")};
  for (const Knob& knob : every_knob().knobs()) {
    if (every_knob().below(knob.pointer).empty()) continue;
    const std::string_view kind = knob.type == KnobType::list ? ", by element"
                                  : knob.closed               ? ""
                                                              : ", open";
    groups.push_back(
        deepspeed_group(fmt::format("{}{}", dotted(knob.pointer), kind), knob.pointer));
  }
  return groups;
}

std::string key_legend() {
  return "Releases: the first that knows the key, the first that does not, and what its default or "
         "range was before; empty: all from 0.14.5 on. Of releases in between these, see "
         "docs/running.md. Effect: `measured` acts on the step as in DeepSpeed, at the stages "
         "given; `none` changes nothing that is measured; `not yet` acts in DeepSpeed, not in the "
         "step here; `refused`: members with another value than the default are not run. A "
         "section that is open takes other keys, too, unchecked.";
}

}  // namespace dstune
