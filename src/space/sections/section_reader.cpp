#include <algorithm>

#include <fmt/format.h>

#include "sections/section_table.hpp"

namespace dstune {

namespace {

using Rows = std::vector<const SectionRow*>;

bool is_form_of(const json::Value& value, const SectionRow& row) {
  switch (row.key.type) {
    case KnobType::boolean:
      return value.is_boolean();
    case KnobType::integer:
    case KnobType::number:
      return value.is_number();
    case KnobType::text:
      return value.is_string();
    case KnobType::object:
      return value.is_object();
    case KnobType::list:
      return value.is_array();
  }
  return false;
}

std::string form_words(const SectionRow& row) {
  switch (row.key.type) {
    case KnobType::boolean:
      return "true or false";
    case KnobType::integer:
      return "an integer";
    case KnobType::number:
      return "a number";
    case KnobType::text:
      return row.key.choices.empty() ? "a text" : fmt::format("\"{}\"", row.key.choices);
    case KnobType::object:
      return "an object";
    case KnobType::list:
      return "a list";
  }
  return "";
}

std::string alternatives(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::size_t index = 0; index < words.size(); ++index) {
    const bool is_last = index + 1 == words.size();
    text += (index == 0 ? "" : is_last ? " or " : ", ") + std::string(words[index]);
  }
  return text;
}

class Reader {
 public:
  Reader(std::span<const SectionRow> rows, SectionTarget& target)
      : rows_(rows), target_(&target), problems_(target.problems) {}

  void read(const json::Node& node, const std::string& row_pointer) {
    const Rows forms = rows_at(row_pointer);
    const std::size_t problems_before = problems_->all().size();
    std::vector<Reading> readings;
    const SectionRow* row = nullptr;
    if (forms.front()->is_listable && node.is_array()) {
      row = forms.front();
      if (node.value().empty())
        problems_->add(
            node.problem("an empty list leaves nothing to try: name at least one value"));
      for (const json::Node& element : node.elements()) read_value(element, *row, readings);
    } else {
      row = form_of(node, forms);
      if (row != nullptr) read_value(node, *row, readings);
    }
    if (row == nullptr || row->apply == nullptr || readings.empty()) return;
    if (problems_->all().size() == problems_before) row->apply(*target_, readings);
  }

 private:
  [[nodiscard]] Rows rows_at(std::string_view pointer) const {
    Rows found;
    for (const SectionRow& row : rows_)
      if (row.key.pointer == pointer) found.push_back(&row);
    return found;
  }

  /// The form that the value has; null after adding a problem where it has none of several.
  const SectionRow* form_of(const json::Node& node, const Rows& forms) {
    if (forms.size() == 1) return forms.front();
    for (const SectionRow* form : forms)
      if (is_form_of(node.value(), *form)) return form;
    std::string words;
    for (const SectionRow* form : forms) words += (words.empty() ? "" : " or ") + form_words(*form);
    problems_->add(
        node.problem(fmt::format("expected {}, got {}", words, json::type_words(node.value()))));
    return nullptr;
  }

  void read_value(const json::Node& node, const SectionRow& row, std::vector<Reading>& readings) {
    std::optional<KnobValue> value = read_knob(node, row.key, *problems_);
    if (!value) return;
    if (auto* text = std::get_if<std::string>(&*value)) {
      if (text->empty()) problems_->add(node.problem("expected a text that is not empty"));
      if (const auto word = find_choice(row.key.choices, *text, true)) *text = *word;
    }
    if (row.key.effect == KnobEffect::refused && *value != default_of(row))
      problems_->add(node.problem(
          fmt::format("{} {} is not built: {}", last_key(row), node.value().dump(), row.key.mend)));
    if (row.key.type == KnobType::object) read_members(node, row);
    readings.push_back({node, std::move(*value)});
  }

  static KnobValue default_of(const SectionRow& row) {
    const auto value = json::Value::parse(row.key.fallback);
    return value.is_number_integer() ? KnobValue(value.get<std::int64_t>()) : KnobValue();
  }

  void read_members(const json::Node& section, const SectionRow& row) {
    std::vector<std::string_view> known;
    for (const SectionRow& below : rows_)
      if (is_below(below, row.key.pointer)) known.push_back(last_key(below));
    const Companion opener = companion_in(row.open_with);
    const bool is_open =
        !opener.key.empty() && word_of(section, row.key.pointer, opener.key) == opener.word;
    if (row.key.closed && !is_open) section.refuse_unknown_keys(*problems_, known);
    for (const std::string& key : section.keys()) {
      const json::Node member = *section.find(key);
      std::string pointer = fmt::format("{}/{}", row.key.pointer, key);
      if (!row.key.closed) pointer = fmt::format("{}/*", row.key.pointer);
      const Rows forms = rows_at(pointer);
      if (forms.empty()) continue;
      const Companion companion = companion_in(forms.front()->only_with);
      if (is_open && !companion.key.empty() && companion.word != opener.word) continue;
      if (member.is_null() && !forms.front()->is_required && !forms.front()->is_alone) continue;
      read(member, pointer);
      check_companion(section, member, *forms.front());
    }
    check_required(section, row);
  }

  /// The word that a section has for a key, as the row spells it.
  [[nodiscard]] std::optional<std::string_view> word_of(const json::Node& section,
                                                        std::string_view pointer,
                                                        std::string_view key) const {
    const auto node = section.find(std::string(key));
    if (!node || !node->is_string()) return std::nullopt;
    const auto& text = node->value().get_ref<const std::string&>();
    for (const SectionRow* row : rows_at(fmt::format("{}/{}", pointer, key))) {
      if (const auto word = find_choice(row->key.choices, text, true)) return word;
    }
    return std::nullopt;
  }

  void check_companion(const json::Node& section, const json::Node& member, const SectionRow& row) {
    const auto [key, wanted] = companion_in(row.only_with);
    if (key.empty()) return;
    const std::string_view pointer = row.key.pointer.substr(0, row.key.pointer.rfind('/'));
    const auto word = word_of(section, pointer, key);
    if (word && *word != wanted)
      problems_->add(member.problem(
          fmt::format("belongs to {} \"{}\", not to \"{}\": remove it", key, wanted, *word)));
  }

  void check_required(const json::Node& section, const SectionRow& row) {
    std::vector<std::string_view> missing;
    for (const SectionRow& below : rows_) {
      if (!is_below(below, row.key.pointer)) continue;
      const std::string key(last_key(below));
      if (below.is_alone && section.find(key)) {
        if (section.keys().size() > 1)
          problems_->add(section.find(key)->problem("stands alone: remove the keys beside it"));
        return;
      }
      if (!below.is_required || section.find(key)) continue;
      const auto [companion, wanted] = companion_in(below.only_with);
      if (companion.empty() || word_of(section, row.key.pointer, companion) == wanted)
        missing.push_back(last_key(below));
    }
    for (const std::string_view key : missing) {
      const SectionRow& lacking = *rows_at(fmt::format("{}/{}", row.key.pointer, key)).front();
      problems_->add(section.problem(fmt::format(
          "\"{}\" is missing: {}", key,
          lacking.key.choices.empty() ? std::string(lacking.key.help)
                                      : alternatives(choices_of(lacking.key.choices)))));
    }
  }

  std::span<const SectionRow> rows_;
  SectionTarget* target_;
  json::Problems* problems_;
};

}  // namespace

bool is_below(const SectionRow& row, std::string_view pointer) {
  return row.key.pointer.substr(0, row.key.pointer.rfind('/')) == pointer;
}

std::string_view last_key(const SectionRow& row) {
  return row.key.pointer.substr(row.key.pointer.rfind('/') + 1);
}

Companion companion_in(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos) return {};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void read_section(const json::Node& node, std::span<const SectionRow> rows, SectionTarget& target) {
  Reader(rows, target).read(node, node.pointer());
}

}  // namespace dstune
