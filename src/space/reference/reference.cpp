#include "dstune/space/reference.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "dstune/core/knobs.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

constexpr std::string_view mark =
    "<!-- From this line on the page is generated from the tables of keys: "
    "cmake --build build/release --target reference -->";

/// In the order of their enumerators.
constexpr std::array type_texts = {"boolean", "integer", "number", "text", "object", "list"};
constexpr std::array effect_texts = {"measured", "none", "not yet", "refused"};

template <class Enum>
std::string text_in(const auto& texts, Enum value) {
  return texts.at(static_cast<std::size_t>(value));
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

std::string stages_text(const Knob& knob) {
  if (knob.stages == 0b1111) return "all";
  std::vector<int> stages;
  for (int stage = 0; stage < 4; ++stage)
    if (knob.acts_at(stage)) stages.push_back(stage);
  return fmt::format("{}", fmt::join(stages, ", "));
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

/// The rows of a section of the DeepSpeed config, elements of its lists among them.
std::string table_of(std::string_view section) {
  std::string text =
      header_text({"key", "type", "default", "range", "stages", "effect", "meaning"});
  for (const std::size_t row : knob_table().below(section)) {
    const Knob& knob = knobs()[row];
    text += row_text({fmt::format("`{}`", last_key(knob.pointer)), text_in(type_texts, knob.type),
                      default_text(knob), range_text(knob), stages_text(knob),
                      text_in(effect_texts, knob.effect), std::string(knob.help)});
  }
  return text;
}

std::string section_table(std::span<const SectionRow> rows) {
  const std::string_view section = rows.front().pointer;
  std::string text = header_text({"key", "type", "default", "range", "meaning"});
  for (const SectionRow& row : rows.subspan(1)) {
    const std::string type =
        text_in(type_texts, row.type) + (row.is_listable ? ", or a list of them" : "");
    text += row_text({fmt::format("`{}`", dotted(row.pointer.substr(section.size()))), type,
                      default_text(row), range_text(row), std::string(row.help)});
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
      table_of("");
  for (const Knob& knob : knobs()) {
    if (knob_table().below(knob.pointer).empty()) continue;
    const std::string_view kind = knob.type == KnobType::list ? ", by element"
                                  : knob.closed               ? ""
                                                              : ", open";
    text += fmt::format("\n### {}{}\n\n{}", dotted(knob.pointer), kind, table_of(knob.pointer));
  }
  return text;
}

std::string with_reference(std::string_view page) {
  const std::size_t begin = std::min(page.find(mark), page.size());
  return std::string(page.substr(0, begin)) + space_reference();
}

}  // namespace dstune
