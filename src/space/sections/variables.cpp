#include <algorithm>
#include <cctype>
#include <map>

#include "dstune/base/text.hpp"
#include "dstune/core/knobs.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

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
      const bool is_left = key == "nvme_path" || member.pointer() == "/dstune/training_command" ||
                           member.pointer() == "/dstune/variables";
      object[key] = is_left ? member.value() : replace(member);
    }
    return object;
  }

 private:
  json::Value replace_list(const json::Node& node) {
    const Knob* const knob = find_knob(node.pointer());
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

json::Value replace_variables(const json::Node& root, const json::Node* variables,
                              json::Problems& problems) {
  return Replacer(variables, problems).replace(root);
}

}  // namespace dstune
