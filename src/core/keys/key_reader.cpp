#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/core/keys.hpp"

namespace dstune {

namespace {

/// Forms of values, in the order of KnobType.
struct Form {
  bool (json::Value::*is_of)() const noexcept;
  std::string_view words;
};
constexpr std::array forms_of_values = {
    Form{&json::Value::is_boolean, "true or false"}, Form{&json::Value::is_number, "an integer"},
    Form{&json::Value::is_number, "a number"},       Form{&json::Value::is_string, "a text"},
    Form{&json::Value::is_object, "an object"},      Form{&json::Value::is_array, "a list"}};

const Form& form_of_type(const Key& key) {
  return forms_of_values.at(static_cast<std::size_t>(key.type));
}

std::string form_words(const Key& key) {
  return key.choices.empty() ? std::string(form_of_type(key).words)
                             : fmt::format("\"{}\"", key.choices);
}

/// "a, b or c"
std::string alternatives(const std::vector<std::string_view>& words) {
  const std::vector<std::string_view> first(words.begin(), words.end() - 1);
  return first.empty() ? std::string(words.back())
                       : fmt::format("{} or {}", fmt::join(first, ", "), words.back());
}

}  // namespace

class KeyReader {
 public:
  KeyReader(const KeyTable& table, json::Problems& problems, const KeyTable::Sink& sink,
            json::Problems* unchecked)
      : table_(&table), problems_(&problems), sink_(&sink), unchecked_(unchecked) {}

  /// `node` is null where the document does not have the key. `section`: what it stands in, where
  /// that is known.
  void read(const json::Node* node, std::size_t first, const json::Node* section) {
    const std::size_t problems_before = problems_->all().size();
    const auto& forms = table_->forms(key(first).pointer);
    KeyReading reading{first, Presence::absent, {}, true, !is_above_unread_};
    if (node == nullptr) {
      for (const std::size_t form : forms) read_inside(nullptr, form, nullptr);
    } else if (key(first).is_listable && node->is_array()) {
      read_candidates(*node, reading);
    } else if (table_->stands_for_default(*node, key(first))) {
      reading.presence = node->is_null() ? Presence::null : Presence::automatic;
      for (const std::size_t form : forms) read_inside(nullptr, form, nullptr);
    } else if (const auto form = form_of(*node, forms)) {
      reading.row = *form;
      read_value(*node, section, reading);
    } else {
      reading.is_read = false;
    }
    reading.is_sound = reading.is_read && problems_->all().size() == problems_before;
    (*sink_)(std::move(reading));
  }

  void read_root(const json::Node& root) {
    for (const std::size_t row : table_->below("")) {
      const auto member = root.find(std::string(last_key(key(row).pointer)));
      const bool is_read = member && !table_->is_idle_name(root, key(row));
      read(is_read ? &*member : nullptr, row, &root);
    }
    for (const std::string& name : root.keys())
      if (const json::Node member = *root.find(name); table_->was_removed(member.pointer()))
        problems_->add(member.problem(table_->words_of_other_release(member.pointer())));
  }

 private:
  struct Member {
    std::size_t row;
    std::optional<json::Node> node;
    std::size_t place;  ///< among the section's keys; behind all of them where it is absent
  };

  [[nodiscard]] const Key& key(std::size_t row) const { return table_->keys_[row]; }

  /// The form that the value has; nothing after adding a problem where it has none of several.
  std::optional<std::size_t> form_of(const json::Node& node,
                                     const std::vector<std::size_t>& forms) {
    if (forms.size() == 1) return forms.front();
    std::vector<std::string> words;
    for (const std::size_t form : forms) {
      if ((node.value().*form_of_type(key(form)).is_of)()) return form;
      words.push_back(form_words(key(form)));
    }
    problems_->add(node.problem(fmt::format("expected {}, got {}", fmt::join(words, " or "),
                                            json::type_words(node.value()))));
    return std::nullopt;
  }

  void read_candidates(const json::Node& list, KeyReading& reading) {
    if (list.value().empty())
      problems_->add(list.problem("an empty list leaves nothing to try: name at least one value"));
    for (const json::Node& element : list.elements()) read_value(element, nullptr, reading);
  }

  void read_value(const json::Node& node, const json::Node* section, KeyReading& reading) {
    const Key& row = key(reading.row);
    if (!row.flag_member.empty() && node.value().is_boolean()) {
      read_flag(node, section, reading);
      return;
    }
    std::optional<KnobValue> value = read_passed_on(node, row, section);
    if (!value) reading.is_read = false;
    const bool was_above_unread = std::exchange(is_above_unread_, is_above_unread_ || !value);
    read_inside(value ? &node : nullptr, reading.row, section);
    is_above_unread_ = was_above_unread;
    reading.presence = value ? Presence::given : Presence::automatic;
    if (!value && node.is_null()) reading.presence = Presence::null;
    if (value) reading.values.push_back({node, std::move(*value)});
  }

  /// A complaint about a value that DeepSpeed's config passes on is marked.
  std::optional<KnobValue> read_passed_on(const json::Node& node, const Key& row,
                                          const json::Node* section) {
    const bool takes_numbers = row.look == KnobLook::number || row.look == KnobLook::divided;
    const bool is_number = node.value().is_number() || node.value().is_boolean();
    const bool is_taken = table_->is_passed_on(row) || !is_looked_at(row, section) ||
                          (takes_numbers && is_number) || is_endless(node.value(), row) ||
                          (row.look == KnobLook::members && node.is_string());
    if (!is_taken) return table_->read_value(node, row, *problems_);
    json::Problems found;
    std::optional<KnobValue> value = table_->read_value(node, row, found);
    if (!value && row.type == KnobType::boolean) value = is_true(node.value());
    const bool is_unchecked = unchecked_ != nullptr && table_->is_unchecked(row);
    for (Problem problem : found.all()) {
      problem.is_late = true;
      if (row.type == KnobType::boolean)
        problem.message += fmt::format(", which counts as {}", is_true(node.value()));
      (is_unchecked ? *unchecked_ : *problems_).add(std::move(problem));
    }
    return value;
  }

  /// An integer of a model that only Python's hold.
  [[nodiscard]] bool is_endless(const json::Value& value, const Key& row) const {
    constexpr double largest = 9.2e18;
    const bool is_whole =
        value.is_number_unsigned() || (value.is_number_float() && table_->is_read_by_pydantic_1());
    return row.type == KnobType::integer && std::isinf(row.high) && is_whole &&
           value.get<double>() > largest && table_->is_converted(row);
  }

  /// The flag that the row's `beside` names is true.
  [[nodiscard]] bool is_looked_at(const Key& row, const json::Node* section) const {
    if (row.beside.empty() || section == nullptr) return true;
    const auto flag = section->find(std::string(row.beside));
    if (!flag) return false;
    const auto place = table_->find(fmt::format("{}/{}", parent_of(row.pointer), row.beside));
    return is_true(flag->value()) && !(place && table_->stands_for_default(*flag, key(*place)));
  }

  /// A flag in place of a section: its member is 0 or 1.
  void read_flag(const json::Node& node, const json::Node* section, KeyReading& reading) {
    reading.presence = Presence::given;
    reading.values.push_back({node, {}});
    for (const std::size_t row : table_->below(key(reading.row).pointer)) {
      if (last_key(key(row).pointer) != key(reading.row).flag_member) {
        const std::string name(key(row).beside_flag);
        const bool is_on = node.value().get<bool>() && section != nullptr && !name.empty();
        const auto beside = is_on ? section->find(name) : std::nullopt;
        read(beside ? &*beside : nullptr, row, nullptr);
        continue;
      }
      const std::int64_t value = node.value().get<bool>() ? 1 : 0;
      (*sink_)({row, Presence::given, {{node, value}}, true});
    }
  }

  /// Everything below a row; `node` is null where its value is not there.
  void read_inside(const json::Node* node, std::size_t row, const json::Node* section) {
    if (key(row).type == KnobType::object) read_members(node, row, section);
    if (key(row).type == KnobType::list) read_elements(node, row);
  }

  void read_members(const json::Node* section, std::size_t row, const json::Node* above) {
    const Key& mine = key(row);
    if (section == nullptr) {
      for (const std::size_t below : table_->below(mine.pointer)) read(nullptr, below, nullptr);
      return;
    }
    const Prerequisite opener = prerequisite_in(mine.open_with);
    const bool is_open = has_word(*section, mine.pointer, opener);
    // The arguments of an optimizer or a scheduler: its own code refuses others.
    const bool is_closed_late = above != nullptr && has_word(*above, parent_of(mine.pointer),
                                                             prerequisite_in(mine.closed_beside));
    const bool is_closed = (mine.closed && !is_open) || is_closed_late;
    const bool by_document = table_->order_ == KeyTable::Order::of_document;
    if (is_closed && by_document) refuse_unknown_keys(*section, mine, false);
    for (const Member& member : members_of(*section, mine)) {
      const Prerequisite prerequisite = prerequisite_in(key(member.row).only_with);
      if (is_open && !prerequisite.key.empty() && prerequisite.words != opener.words) continue;
      read(member.node ? &*member.node : nullptr, member.row, section);
      if (member.node && !table_->stands_for_default(*member.node, key(member.row)))
        check_prerequisite(*section, *member.node, key(member.row));
    }
    if (is_closed && !by_document) refuse_unknown_keys(*section, mine, is_closed_late);
    if (mine.of_sections)
      for (const std::string& name : section->keys())
        section->find(name)->expect_object(*problems_);
    check_required(*section, mine);
  }

  void refuse_unknown_keys(const json::Node& section, const Key& mine, bool is_late) {
    json::Problems found;
    std::vector<std::string_view> known;
    for (const std::size_t row : table_->below(mine.pointer))
      known.push_back(last_key(key(row).pointer));
    const std::vector<std::string> names = section.keys();
    // DeepSpeed drops such a member before it looks which there are.
    const auto is_dropped = [&](const std::string& name) {
      return mine.model && !mine.keeps_auto && section.find(name)->value() == "auto";
    };
    for (const std::string& name : names) {
      const std::string pointer = fmt::format("{}/{}", mine.pointer, name);
      const std::string words = table_->words_of_other_release(pointer);
      if (words.empty() && is_dropped(name)) known.push_back(name);
      if (words.empty()) continue;
      known.push_back(name);
      if (is_dropped(name) && !table_->was_removed(pointer)) continue;
      Problem problem = section.find(name)->problem(words);
      problem.is_unknown_key = true;
      found.add(std::move(problem));
    }
    section.refuse_unknown_keys(found, known);
    for (Problem problem : found.all()) {
      problem.is_late = is_late;
      problems_->add(std::move(problem));
    }
  }

  /// The rows below a section, in the table's order, with what it says of them.
  [[nodiscard]] std::vector<Member> members_of(const json::Node& section, const Key& mine) const {
    const std::vector<std::string> names = section.keys();
    std::vector<Member> members;
    for (const std::size_t row : table_->below(mine.pointer)) {
      const std::string_view wanted = last_key(key(row).pointer);
      bool is_there = false;
      for (std::size_t place = 0; place < names.size(); ++place) {
        if (wanted != "*" && wanted != names[place]) continue;
        members.push_back({row, section.find(names[place]), place});
        is_there = true;
      }
      if (!is_there) members.push_back({row, std::nullopt, names.size()});
    }
    if (table_->order_ == KeyTable::Order::of_document)
      std::stable_sort(members.begin(), members.end(), [](const Member& one, const Member& other) {
        return one.place < other.place;
      });
    return members;
  }

  /// Lists of fixed length have a row for each element.
  void read_elements(const json::Node* list, std::size_t row) {
    const auto& rows = table_->below(key(row).pointer);
    if (rows.empty()) return;
    const auto elements = list ? list->elements() : std::vector<json::Node>();
    const bool fits = elements.size() == rows.size();
    if (list != nullptr && !fits) {
      Problem problem = list->problem(
          fmt::format("expected a list of {} numbers, got {}", rows.size(), elements.size()));
      problem.is_late = table_->is_passed_on(key(row));
      problems_->add(std::move(problem));
    }
    for (std::size_t index = 0; index < rows.size(); ++index)
      read(fits ? &elements[index] : nullptr, rows[index], nullptr);
  }

  /// The word that a section has for a key, as the row spells it.
  [[nodiscard]] std::optional<std::string_view> word_of(const json::Node& section,
                                                        std::string_view pointer,
                                                        std::string_view name) const {
    const auto node = section.find(std::string(name));
    if (!node || !node->is_string()) return std::nullopt;
    const auto& text = node->value().get_ref<const std::string&>();
    for (const std::size_t row : table_->forms(fmt::format("{}/{}", pointer, name)))
      if (const auto word = find_choice(key(row).choices, text, key(row).any_case)) return word;
    for (const std::size_t row : table_->forms(fmt::format("{}/{}", pointer, name)))
      if (key(row).choices.empty()) return text;
    return std::nullopt;
  }

  /// The section at `pointer` has one of the companion's words.
  [[nodiscard]] bool has_word(const json::Node& section, std::string_view pointer,
                              const Prerequisite& prerequisite) const {
    if (prerequisite.key.empty()) return false;
    if (!section.find(std::string(prerequisite.key))) {
      // The default counts where nothing is written.
      const auto row = table_->find(fmt::format("{}/{}", pointer, prerequisite.key));
      const auto* const usual =
          row ? std::get_if<std::string>(&table_->default_value(*row)) : nullptr;
      return usual != nullptr && find_choice(prerequisite.words, *usual, true);
    }
    const auto word = word_of(section, pointer, prerequisite.key);
    return word && find_choice(prerequisite.words, *word, true);
  }

  void check_prerequisite(const json::Node& section, const json::Node& member, const Key& mine) {
    const auto [name, wanted] = prerequisite_in(mine.only_with);
    if (name.empty()) return;
    const auto word = word_of(section, parent_of(mine.pointer), name);
    if (word && *word != wanted)
      problems_->add(member.problem(
          fmt::format("belongs to {} \"{}\", not to \"{}\": remove it", name, wanted, *word)));
  }

  void check_required(const json::Node& section, const Key& mine) {
    std::vector<std::size_t> missing;
    for (const std::size_t row : table_->below(mine.pointer)) {
      const std::string name(last_key(key(row).pointer));
      if (key(row).is_alone && section.find(name)) {
        if (section.keys().size() > 1)
          problems_->add(section.find(name)->problem("stands alone: remove the keys beside it"));
        return;
      }
      if (!key(row).is_required || section.find(name)) continue;
      if (!is_looked_at(key(row), &section)) continue;
      const Prerequisite prerequisite = prerequisite_in(key(row).only_with);
      if (prerequisite.key.empty() || has_word(section, mine.pointer, prerequisite))
        missing.push_back(row);
    }
    for (const std::size_t row : missing) {
      const Key& lacking = key(row);
      const std::string words = lacking.choices.empty() ? std::string(lacking.help)
                                                        : alternatives(choices_of(lacking.choices));
      problems_->add(
          section.problem(fmt::format("\"{}\" is missing: {}", last_key(lacking.pointer), words)));
    }
  }

  const KeyTable* table_;
  json::Problems* problems_;
  const KeyTable::Sink* sink_;
  json::Problems* unchecked_;
  bool is_above_unread_ = false;  ///< inside a section whose own value could not be read
};

void KeyTable::read(const json::Node& node, json::Problems& problems, const Sink& sink,
                    json::Problems* unchecked) const {
  KeyReader reader(*this, problems, sink, unchecked);
  if (node.pointer().empty()) {
    if (node.expect_object(problems)) reader.read_root(node);
  } else if (const auto row = find(node.pointer())) {
    reader.read(&node, *row, nullptr);
  }
}

}  // namespace dstune
