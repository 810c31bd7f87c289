#include "dstune/space/config_document.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accelerate_config.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"
#include "dstune/base/yaml.hpp"
#include "dstune/core/settings.hpp"
#include "sections/sections.hpp"

namespace dstune {

namespace {

namespace fs = std::filesystem;
using json::Document;
using json::Value;

/// A document, and whether its text is YAML.
struct Notation {
  Document document;
  bool is_yaml = false;
};

/// Tells whether a document without braces is YAML: Hjson has a text where YAML has a mapping.
bool is_misread(const Value& hjson, const Value& yaml) {
  return yaml.is_object() && std::ranges::any_of(yaml.items(), [&](const auto& item) {
           const auto read = hjson.find(item.key());
           return item.value().is_object() && (read == hjson.end() || !read->is_object());
         });
}

/// YAML of several levels, or nothing.
std::optional<Document> as_yaml(const std::string& text, const std::string& path) {
  try {
    Document document = parse_yaml(text, path);
    if (is_misread(Value::object(), document.root())) return document;
  } catch (const InputError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

Notation read_any_notation(const std::string& path) {
  const std::string ending = lower_case(fs::path(path).extension().string());
  if (ending == ".hjson") return {Document::read(path)};
  const std::string text = read_input_file(path);
  const std::size_t first = text.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  const bool has_braces = first != text.npos && (text[first] == '{' || text[first] == '[');
  if (ending == ".yaml" || ending == ".yml") {
    try {
      return {parse_yaml(text, path), true};
    } catch (const InputError&) {
      if (!has_braces) throw;
    }
    return {Document::parse_either(text, path)};
  }
  try {
    Notation read{Document::parse_either(text, path)};
    if (has_braces) return read;
    if (auto yaml = as_yaml(text, path); yaml && is_misread(read.document.root(), yaml->root()))
      return {*std::move(yaml), true};
    return read;
  } catch (const InputError&) {
    if (auto yaml = has_braces ? std::nullopt : as_yaml(text, path))
      return {*std::move(yaml), true};
    throw;
  }
}

/// A YAML document that is no config: what it is, as far as its keys tell.
[[noreturn]] void refuse_foreign(const Document& document) {
  const json::Node root = document.node();
  if (root.is_null())
    throw InputError({root.problem("the file is empty: write a DeepSpeed config")});
  if (!root.is_object())
    throw InputError({root.problem(fmt::format(
        "this YAML is {}: write the keys of a DeepSpeed config", json::type_words(root.value())))});
  if (const auto named = root.find("deepspeed"); named && named->is_string())
    throw InputError({named->problem(fmt::format(
        "this YAML holds a training's arguments, and {} is its DeepSpeed config: give that file",
        printable(named->value().get<std::string>())))});
  constexpr std::size_t most_shown = 4;
  std::vector<std::string> shown = root.keys();
  const bool has_more = shown.size() > most_shown;
  shown.resize(std::min(shown.size(), most_shown));
  for (std::string& key : shown) key = printable(key);
  throw InputError({root.problem(fmt::format(
      "this YAML is neither a DeepSpeed config nor a file of accelerate config: its keys are {}{}; "
      "give a config of DeepSpeed's, or a file with deepspeed_config",
      fmt::join(shown, ", "), has_more ? ", …" : ""))});
}

/// Tells whether a document has a section of this program's.
bool is_space(const Value& root) {
  return std::ranges::any_of(our_sections, [&](const char* ours) { return root.contains(ours); });
}

/// Tells whether YAML is a DeepSpeed config: files of training arguments have some of its keys,
/// too.
bool is_config(const Value& root) {
  if (!root.is_object()) return false;
  if (root.contains("zero_optimization") || is_space(root)) return true;
  const auto known = std::ranges::count_if(root.items(), [](const auto& item) {
    return every_knob().find_knob(json::append_pointer("", item.key())) != nullptr;
  });
  const auto total = static_cast<std::ptrdiff_t>(root.size());
  return !root.contains("deepspeed") && known > 0 && 2 * known >= total;
}

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  Notation read = read_any_notation(path);
  if (is_accelerate_file(read.document.root())) {
    return read_accelerate_config(read.document);
  }
  if (read.is_yaml && !is_config(read.document.root())) refuse_foreign(read.document);
  std::vector<Problem> notes;
  // A space is written for this program.
  if (read.is_yaml && !is_space(read.document.root()))
    notes.push_back(read.document.node().problem(
        "this is YAML, and DeepSpeed reads JSON and Hjson: write it as JSON to train"));
  return {std::move(read.document), std::nullopt, std::move(notes)};
}

json::Document read_config_document(const std::string& path) {
  return read_config_file(path).document;
}

}  // namespace dstune
