// docs/keys.md, and the help of a key, which is a section of it.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/space/reference.hpp"
#include "reference/key_words.hpp"

namespace dstune {
namespace {

constexpr std::size_t page_width = 100;

/// By their word.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> effect_meanings{
    {{"measured", "acts on the built-in step as in DeepSpeed"},
     {"none", "changes nothing that is measured"},
     {"not yet", "acts in DeepSpeed, not in the built-in step"},
     {"refused", "the built-in step runs the default only; DeepSpeed's engine runs all values"}}};

/// A line that began with it would be a heading, a list or a quotation.
bool begins_no_line(std::string_view word) {
  return word.size() == 1 && std::string_view("-+*#>|").find(word) != std::string_view::npos;
}

/// Breaks a text at blanks. All lines but the first begin behind the indent.
std::string filled(std::string_view text, std::string_view indent) {
  std::string lines;
  std::size_t column = 0;
  for (const std::string_view word : split(text, ' ')) {
    const bool is_full = column + 1 + word.size() > page_width && !begins_no_line(word);
    if (!lines.empty()) lines += is_full ? "\n" + std::string(indent) : " ";
    column = is_full ? indent.size() : column + (lines.empty() ? 0 : 1);
    lines += word;
    column += word.size();
  }
  return lines;
}

std::string fact(std::string_view name, std::string_view value) {
  return value.empty() ? "" : filled(fmt::format("- {}: {}", name, value), "  ") + "\n";
}

std::string effect_fact(const KeyWords& key) {
  for (const auto& [word, meaning] : effect_meanings)
    if (key.effect == word)
      return fact("Effect", fmt::format("{} ({})", word, key.hint.empty() ? meaning : key.hint));
  return "";
}

/// A line does not end inside a text of the document.
std::string example_fact(std::string document) {
  constexpr char blank = '\x01';
  if (document.empty()) return "";
  bool is_inside = false;
  for (char& c : document) {
    if (c == '"') is_inside = !is_inside;
    if (c == ' ' && is_inside) c = blank;
  }
  std::string line = fact("Example", fmt::format("`{}`", document));
  std::ranges::replace(line, blank, ' ');
  return line;
}

std::string title_of(const KeyGroup& group) {
  return group.title.find(' ') == group.title.npos ? "Section " + group.title : group.title;
}

/// As GitHub makes it of a heading.
std::string anchor_of(std::string_view heading) {
  std::string anchor = lower_case(heading);
  for (char& c : anchor)
    if (c == ' ') c = '-';
  return anchor;
}

std::string contents(const std::vector<KeyGroup>& groups) {
  std::string list;
  for (const KeyGroup& group : groups) {
    const bool is_section = title_of(group) != group.title;
    list += filled(fmt::format("- [{}](#{}): {}", group.title, anchor_of(title_of(group)),
                               is_section ? group.keys.front().help : "keys outside all sections"),
                   "  ") +
            "\n";
  }
  return list;
}

const std::vector<KeyGroup>& all_groups() {
  static const std::vector<KeyGroup> groups = key_groups();
  return groups;
}

/// "zero_optimization.stage" for "/zero_optimization/stage"
std::string path_in(std::string_view word) {
  std::string path(word.starts_with('/') ? word.substr(1) : word);
  if (word.starts_with('/'))
    for (char& c : path)
      if (c == '/') c = '.';
  return path;
}

/// The keys that a word names: by path or JSON pointer; else all of which it is the last part.
std::vector<KeyWords> find_keys(std::string_view word) {
  const std::string path = path_in(word);
  const std::string end = "." + path;
  std::vector<KeyWords> found;
  for (const KeyGroup& group : all_groups())
    for (const KeyWords& key : group.keys) {
      if (key.path == path) return {key};
      if (key.path.ends_with(end)) found.push_back(key);
    }
  return found;
}

}  // namespace

std::string capitalized(std::string_view words) {
  std::string text(words);
  const std::string_view first = words.substr(0, words.find(' '));
  const bool is_name = first.find_first_of("_.`/") != first.npos;
  const bool is_small = text.front() >= 'a' && text.front() <= 'z';
  if (is_small && !is_name) text.front() = static_cast<char>(text.front() - 'a' + 'A');
  return text;
}

std::string key_text(const KeyWords& key) {
  return fmt::format("{}\n\n{}\n\n", key.path, filled(capitalized(key.help) + ".", "")) +
         fact("Type", key.type) + fact("Default", key.fallback) +
         fact("ZeRO stages", key.stages == "all" ? "" : key.stages) +
         fact("DeepSpeed releases", key.releases) + effect_fact(key) +
         fact("Other keys in it", key.others) + example_fact(key.example);
}

std::string help_of_key(std::string_view word) {
  const std::vector<KeyWords> keys = find_keys(word);
  if (keys.empty()) return "";
  if (keys.size() == 1) return key_text(keys.front());
  std::string names;
  for (const KeyWords& key : keys) names += "  " + key.path + "\n";
  return fmt::format("{} keys end in {}; dstune-mpi help KEY describes one of them:\n{}",
                     keys.size(), word, names);
}

std::string suggested_key(std::string_view word) {
  const std::vector<KeyGroup>& groups = all_groups();
  std::vector<std::string_view> paths;
  for (const KeyGroup& group : groups)
    for (const KeyWords& key : group.keys) {
      paths.push_back(key.path);
      paths.push_back(std::string_view(key.path).substr(key.path.rfind('.') + 1));
    }
  return json::suggestion(path_in(word), paths);
}

std::string keys_page() {
  const std::vector<KeyGroup>& groups = all_groups();
  std::string page =
      "<!-- Generated by dstune-reference docs: do not edit. -->\n"
      "# Keys of space.json\n\n"
      "This page has every key of a [space](space.md), by section. `dstune-mpi help KEY` prints\n"
      "the same for one key, for example `dstune-mpi help zero_optimization.stage`. The last part\n"
      "of a key is enough if no other key ends like it: `dstune-mpi help stage`.\n\n";
  for (const std::string& line : key_legend()) page += filled("- " + line, "  ") + "\n";
  page += "\n## Contents\n\n" + contents(groups);
  for (const KeyGroup& group : groups) {
    page += fmt::format("\n## {}\n", title_of(group));
    for (const KeyWords& key : group.keys) page += "\n### " + key_text(key);
  }
  return page;
}

}  // namespace dstune
