#include "command/launch_options.hpp"

#include <algorithm>
#include <charconv>

#include "dstune/base/text.hpp"

namespace dstune {

namespace {

std::string in_lines(std::string name) {
  const std::size_t first = std::min(name.find_first_not_of('-'), name.size());
  std::replace(name.begin() + static_cast<std::ptrdiff_t>(first), name.end(), '-', '_');
  return name;
}

/// The option's first name in a list, or nothing.
std::string exact_name(std::string_view list, std::string_view name) {
  for (const std::string_view option : split(list, ' ')) {
    const std::vector<std::string_view> names = split(option, '|');
    if (!name.empty() && std::find(names.begin(), names.end(), name) != names.end())
      return std::string(names.front());
  }
  return "";
}

/// The long options that begin so, by their first names.
std::vector<std::string> begun_by(std::string_view list, std::string_view begin) {
  std::vector<std::string> found;
  for (const std::string_view option : split(list, ' '))
    for (const std::string_view name : split(option, '|'))
      if (name.starts_with(begin) && begin.size() > 2 && name.starts_with("--"))
        found.emplace_back(split(option, '|').front());
  return found;
}

struct Known {
  std::string name;
  std::size_t num_values;
};

std::optional<Known> known(const OptionSyntax& syntax, const std::string& name) {
  const std::string_view lists[] = {syntax.flags, syntax.with_value, syntax.with_two_values};
  for (std::size_t values = 0; values < 3; ++values)
    if (std::string found = exact_name(lists[values], name); !found.empty())
      return Known{std::move(found), values};
  if (!syntax.abbreviates) return std::nullopt;
  std::optional<Known> only;
  for (std::size_t values = 0; values < 3; ++values) {
    for (std::string& found : begun_by(lists[values], name)) {
      if (only && only->name != found) return std::nullopt;
      only = Known{std::move(found), values};
    }
  }
  return only;
}

}  // namespace

const GivenOption* GivenOptions::find(std::string_view name) const {
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [name](const GivenOption& each) { return each.name == name; });
  return found == all.rend() ? nullptr : &*found;
}

GivenOptions read_options(const std::vector<std::string>& words, std::size_t begin,
                          const OptionSyntax& syntax) {
  GivenOptions given;
  given.begin = begin;
  std::size_t i = begin;
  while (i < words.size() && words[i].size() > 1 && words[i].front() == '-') {
    const std::string& word = words[i];
    if (word == "--") {
      ++i;
      break;
    }
    const bool is_long = word.starts_with("--");
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (is_long && syntax.dashes_are_lines) name = in_lines(name);
    std::optional<Known> option = known(syntax, name);
    if (!option && syntax.unknown == OptionSyntax::Unknown::takes_value) option = Known{name, 1};
    if (option && equals != word.npos) {
      given.all.push_back(
          {option->name, i, i, word.substr(0, equals + 1), word.substr(equals + 1)});
      i += option->num_values > 1 ? 2 : 1;
      continue;
    }
    if (!option && !is_long && syntax.joins_short_values && word.size() > 2) {
      option = known(syntax, word.substr(0, 2));
      // Flags in one word: -lu.
      if (option) {
        given.all.push_back({option->name, i, i, word.substr(0, 2), word.substr(2)});
        ++i;
        continue;
      }
    }
    if (!option) {
      given.unknown = word;
      break;
    }
    const std::size_t value = std::min(i + (option->num_values > 0 ? 1 : 0), words.size() - 1);
    given.all.push_back({option->name, i, value, "", value == i ? "" : words[value]});
    i += 1 + option->num_values;
  }
  given.end = std::min(i, words.size());
  return given;
}

std::optional<int> count_of(const std::string& text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end || number < 1) return std::nullopt;
  return number;
}

std::optional<int> count_of(const GivenOption* option) {
  return option == nullptr ? std::nullopt : count_of(option->value);
}

bool is_variable(const std::string& text) {
  return text.find_first_of("$`") != std::string::npos;
}

void set_option(const GivenOptions& options, std::string_view name, const std::string& value,
                WordEdits& edits) {
  for (const GivenOption& each : options.all)
    if (each.name == name && each.value != value)
      edits.push_back({each.value_word, true, {each.front + value}});
}

void set_or_add_option(const GivenOptions& options, std::string_view name, const std::string& value,
                       WordEdits& edits) {
  if (options.find(name) != nullptr)
    set_option(options, name, value, edits);
  else
    edits.push_back({options.begin, false, {std::string(name), value}});
}

void remove_option(const GivenOptions& options, std::string_view name, WordEdits& edits) {
  for (const GivenOption& each : options.all) {
    if (each.name != name) continue;
    edits.push_back({each.word, true, {}});
    if (each.value_word != each.word) edits.push_back({each.value_word, true, {}});
  }
}

}  // namespace dstune
