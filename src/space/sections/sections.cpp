#include "sections/sections.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {

namespace {

KeyTable table_of(std::span<const SectionRow> rows) {
  return {{rows.begin(), rows.end()}, KeyTable::Order::of_document};
}

/// Reads a section by its rows; each row's values are applied once they are sound.
void read_section(const json::Node& section, const KeyTable& table,
                  std::span<const SectionRow> rows, SectionTarget& target) {
  table.read(section, *target.problems, [&](const KeyReading& reading) {
    const SectionRow& row = rows[reading.row];
    if (!reading.is_sound || reading.values.empty()) return;
    const Reading& first = reading.values.front();
    if (row.effect == KnobEffect::refused && first.value != table.default_value(reading.row)) {
      target.unbuilt->add(first.node.problem(fmt::format(
          "{} {} is not built: {}", last_key(row.pointer), first.node.value().dump(), row.hint)));
    } else if (row.apply != nullptr) {
      row.apply(target, reading.values);
    }
  });
}

/// Each key is right by itself. The problem stands at the key that the document has.
void add_order_problem(const json::Node& section, const char* upper, const char* lower,
                       json::Problems& problems) {
  auto place = section.find(upper);
  if (!place || place->is_null()) place = section.find(lower);
  problems.add(
      (place ? *place : section).problem(fmt::format("{} is below {}: raise it", upper, lower)));
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

class Replacer {
 public:
  Replacer(const json::Node* variables, json::Problems& problems) : problems_(&problems) {
    if (variables == nullptr || !variables->expect_object(problems)) return;
    for (const auto& name : variables->keys()) {
      const auto node = *variables->find(name);
      if (name.empty() || !std::all_of(name.begin(), name.end(), is_name_character)) {
        problems.add(node.problem("a variable's name has letters, digits and _ only"));
      } else if (!values_.emplace(lower_case(name), node.value()).second) {
        problems.add(node.problem("this variable is there twice: names do not differ by case"));
      }
      written_.emplace(lower_case(name), name);
    }
  }

  json::Value replace(const json::Node& node) {
    if (node.is_string()) return replace_text(node);
    if (node.is_array()) return replace_list(node);
    if (!node.is_object()) return node.value();
    json::Value object = json::Value::object();
    for (const auto& key : node.keys()) {
      const auto member = *node.find(key);
      // Command lines have variables of their own: $CONFIG, and the shell's.
      static const std::set<std::string_view> left = {"/dstune/training_command",
                                                      "/dstune/workload/args",
                                                      "/dstune/verify/args", "/dstune/variables"};
      const bool is_left = key == "nvme_path" || left.contains(member.pointer());
      object[key] = is_left ? member.value() : replace(member);
    }
    return object;
  }

 private:
  json::Value replace_list(const json::Node& node) {
    const Knob* const knob = every_knob().find_knob(node.pointer());
    const bool is_one_value = knob != nullptr && knob->type == KnobType::list;
    json::Value list = json::Value::array();
    for (const auto& element : node.elements()) {
      auto value = replace(element);
      if (value.is_array() && element.is_string() && !is_one_value) {
        for (auto& spliced : value) list.push_back(std::move(spliced));
      } else {
        list.push_back(std::move(value));
      }
    }
    return list;
  }

  json::Value replace_text(const json::Node& node) {
    const auto& text = node.value().get_ref<const std::string&>();
    std::string replaced;
    std::size_t at = 0;
    while (at < text.size()) {
      std::size_t end = at + 1;
      if (text[at] == '$') {
        while (end < text.size() && is_name_character(text[end])) ++end;
      }
      const auto written_name = text.substr(at + 1, end - at - 1);
      const auto name = lower_case(written_name);
      const bool is_whole = at == 0 && end == text.size();
      if (name.empty() || name == "nvme_path") {
        replaced += text.substr(at, end - at);
      } else if (const auto* value = find(name, written_name, node)) {
        if (is_whole) return *value;
        replaced += as_text(*value, node);
      }
      at = end;
    }
    return replaced;
  }

  const json::Value* find(const std::string& name, const std::string& written_name,
                          const json::Node& node) {
    const auto found = values_.find(name);
    if (found != values_.end()) return &found->second;
    std::vector<std::string_view> known;
    for (const auto& [lower, as_written] : written_) known.push_back(lower);
    const auto meant = json::nearest(name, known);
    problems_->add(node.problem(
        "the variable $" + written_name + " is unknown: " +
        (meant ? "did you mean $" + written_.at(*meant) + "?" : "define it in dstune.variables")));
    return nullptr;
  }

  std::string as_text(const json::Value& value, const json::Node& node) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_primitive()) return value.dump();
    problems_->add(
        node.problem("a list or an object can not stand inside a text: let the variable "
                     "be the whole text"));
    return "";
  }

  json::Problems* problems_;
  std::map<std::string, json::Value> values_;
  std::map<std::string, std::string> written_;  ///< names in lower case → as written
};

}  // namespace

std::vector<SectionRow> section_rows(const std::string& table, const SectionSetters& setters) {
  std::vector<SectionRow> rows;
  std::size_t taken = 0;
  for (const Key& key : key_rows(table)) {
    SectionRow& row = rows.emplace_back(SectionRow{key});
    row.takes_auto = row.takes_empty = false;
    row.any_case = !row.choices.empty();
    const std::string form =
        fmt::format("{}{}", row.pointer, row.type == KnobType::object ? "/" : "");
    const auto setter = setters.find(form);
    if (setter == setters.end()) continue;
    row.apply = setter->second;
    ++taken;
  }
  require(taken >= setters.size(), "every key that does something stands in keys.json");
  return rows;
}

std::optional<json::Node> given(const json::Node& section, const std::string& key) {
  auto node = section.find(key);
  if (node && node->is_null()) node.reset();
  return node;
}

void add_all(const InputError& error, json::Problems& problems) {
  for (const auto& problem : error.problems()) problems.add(problem);
}

std::string path_from(const std::string& folder, const std::string& path) {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

void read_autotuning(const json::Node& section, SectionTarget& target) {
  static const KeyTable table = table_of(autotuning_rows());
  read_section(section, table, autotuning_rows(), target);
  const TuningOptions& tuning = target.job->tuning;
  if (tuning.measure.end_profile_step < tuning.measure.start_profile_step)
    add_order_problem(section, "end_profile_step", "start_profile_step", *target.problems);
  if (tuning.max_train_batch_size && *tuning.max_train_batch_size < tuning.min_train_batch_size)
    add_order_problem(section, "max_train_batch_size", "min_train_batch_size", *target.problems);
  if (tuning.max_train_micro_batch_size_per_gpu < tuning.min_train_micro_batch_size_per_gpu)
    add_order_problem(section, "max_train_micro_batch_size_per_gpu",
                      "min_train_micro_batch_size_per_gpu", *target.problems);
}

void read_dstune(const json::Node& section, SectionTarget& target) {
  static const KeyTable table = table_of(dstune_rows());
  read_section(section, table, dstune_rows(), target);
}

json::Value replace_variables(const json::Node& root, const json::Node* variables,
                              json::Problems& problems) {
  return Replacer(variables, problems).replace(root);
}

json::Value replace_own_variables(const json::Node& root, json::Problems& problems) {
  const auto section = given(root, "dstune");
  const auto variables = section ? given(*section, "variables") : std::nullopt;
  return replace_variables(root, variables ? &*variables : nullptr, problems);
}

}  // namespace dstune
