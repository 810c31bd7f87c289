#include "dstune/space/reference.hpp"

#include <cmath>

#include <fmt/format.h>

#include "dstune/core/knobs.hpp"
#include "sections/section_table.hpp"

namespace dstune {

namespace {

constexpr std::string_view mark =
    "<!-- From this line on the page is generated from the tables of keys: "
    "cmake --build build/release --target reference -->";

std::string type_text(KnobType type) {
  switch (type) {
    case KnobType::boolean:
      return "boolean";
    case KnobType::integer:
      return "integer";
    case KnobType::number:
      return "number";
    case KnobType::text:
      return "text";
    case KnobType::object:
      return "object";
    case KnobType::list:
      return "list";
  }
  return "";
}

std::string bound_text(double value) {
  if (std::trunc(value) == value && std::abs(value) < 0x1p62)
    return std::to_string(static_cast<std::int64_t>(value));
  return json::Value(value).dump();
}

std::string range_text(const Knob& knob) {
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

std::string default_text(const Knob& knob) {
  return knob.fallback == "null" ? "" : fmt::format("`{}`", knob.fallback);
}

std::string stages_text(const Knob& knob) {
  if (knob.stages == 0b1111) return "all";
  std::string text;
  for (int stage = 0; stage < 4; ++stage)
    if (knob.acts_at(stage)) text += (text.empty() ? "" : ", ") + std::to_string(stage);
  return text;
}

std::string_view effect_text(KnobEffect effect) {
  switch (effect) {
    case KnobEffect::measured:
      return "measured";
    case KnobEffect::inert:
      return "none";
    case KnobEffect::not_built:
      return "not yet";
    case KnobEffect::refused:
      return "refused";
  }
  return "";
}

std::string row_text(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) {
    std::string safe = cell;
    for (std::size_t at = safe.find('|'); at != safe.npos; at = safe.find('|', at + 2))
      safe.insert(at, "\\");
    text += " " + safe + " |";
  }
  return text + "\n";
}

std::string header_text(const std::vector<std::string>& cells) {
  return row_text(cells) + row_text(std::vector<std::string>(cells.size(), "---"));
}

std::string dotted(std::string_view pointer) {
  std::string name(pointer.substr(1));
  for (char& c : name)
    if (c == '/') c = '.';
  return name;
}

/// The rows of a section of the DeepSpeed config, elements of its lists among them.
std::string knob_table(std::string_view section) {
  std::string text =
      header_text({"key", "type", "default", "range", "stages", "effect", "meaning"});
  for (const Knob& knob : knobs()) {
    if (knob.pointer.substr(0, knob.pointer.rfind('/')) != section) continue;
    text += row_text({fmt::format("`{}`", knob.pointer.substr(section.size() + 1)),
                      type_text(knob.type), default_text(knob), range_text(knob), stages_text(knob),
                      std::string(effect_text(knob.effect)), std::string(knob.help)});
  }
  return text;
}

bool has_members(const Knob& section) {
  for (const Knob& knob : knobs())
    if (knob.pointer.substr(0, knob.pointer.rfind('/')) == section.pointer) return true;
  return false;
}

std::string section_table(std::span<const SectionRow> rows) {
  const std::string_view section = rows.front().key.pointer;
  std::string text = header_text({"key", "type", "default", "range", "meaning"});
  for (const SectionRow& row : rows.subspan(1)) {
    const std::string type =
        type_text(row.key.type) + (row.is_listable ? ", or a list of them" : "");
    text += row_text({fmt::format("`{}`", dotted(row.key.pointer.substr(section.size()))), type,
                      default_text(row.key), range_text(row.key), std::string(row.key.help)});
  }
  return text;
}

}  // namespace

std::string space_reference() {
  std::string text(mark);
  text += "\n\n## Keys of dstune\n\n" + section_table(dstune_rows());
  text += "\n## Keys of autotuning\n\n" + section_table(autotuning_rows());
  text +=
      "\n## Keys of DeepSpeed 0.19.6\n\n"
      "Effect: `measured` acts on the step as in DeepSpeed, at the stages given; `none` changes "
      "nothing that is measured; `not yet` acts in DeepSpeed, not in the step here; `refused`: "
      "members with another value than the default are not run. A section that is open takes "
      "other keys, too, unchecked.\n\n### Top level\n\n" +
      knob_table("");
  for (const Knob& knob : knobs()) {
    if (!has_members(knob)) continue;
    const std::string_view kind = knob.type == KnobType::list ? ", by element"
                                  : knob.closed               ? ""
                                                              : ", open";
    text += fmt::format("\n### {}{}\n\n{}", dotted(knob.pointer), kind, knob_table(knob.pointer));
  }
  return text;
}

std::string with_reference(std::string_view page) {
  const std::size_t begin = std::min(page.find(mark), page.size());
  return std::string(page.substr(0, begin)) + space_reference();
}

}  // namespace dstune
