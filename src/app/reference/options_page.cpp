#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_facts.hpp"
#include "dstune/base/text.hpp"
#include "environment_table.hpp"
#include "exit_table.hpp"
#include "manuals.hpp"
#include "option_table.hpp"
#include "wrapped_text.hpp"

namespace dstune {
namespace {

void add_wrapped(std::string& page, std::string_view first, std::size_t indent,
                 std::string_view text) {
  page += first;
  page += wrapped_text(text, indent, first.size());
  page += '\n';
}

void add_item(std::string& page, const std::string& text) {
  add_wrapped(page, "- ", 2, text);
}

void add_paragraph(std::string& page, std::string_view text) {
  page += '\n';
  add_wrapped(page, "", 0, text);
}

std::string capitalised(std::string_view text) {
  std::string words(text);
  words.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(words.front())));
  return words;
}

std::string code(std::string_view text) {
  return fmt::format("`{}`", text);
}

std::string codes_of(const std::vector<std::string>& names) {
  std::vector<std::string> codes;
  for (const std::string& name : names) codes.push_back(code(name));
  return fmt::format("{}", fmt::join(codes, ", "));
}

/// Options, keys of a space, files and the values of the option itself are typed as they stand.
bool is_typed(std::string_view word, const OptionRow& option) {
  if (std::ranges::find(option.words, word) != option.words.end()) return true;
  if (word.starts_with("--") || word == "-h") return true;
  if (word.find_first_of("_@$") != word.npos) return true;
  const std::size_t point = word.find('.');
  return point != word.npos && point > 0 && point + 1 < word.size() && word[point + 1] != '.';
}

std::string with_codes(std::string_view text, const OptionRow& option) {
  std::string marked;
  while (!text.empty()) {
    // A quoted text stays whole, with its quotes.
    const std::size_t quoted = text.starts_with('"') ? text.find('"', 1) : text.npos;
    const std::size_t end = std::min(text.find(' ', quoted == text.npos ? 0 : quoted), text.size());
    const std::string_view word = text.substr(0, end);
    const std::size_t first = std::min(word.find_first_not_of('('), word.size());
    const std::size_t last = std::max(first, word.find_last_not_of(",;:)") + 1);
    const std::string_view middle = word.substr(first, last - first);
    marked += word.substr(0, first);
    marked += quoted != text.npos || is_typed(middle, option) ? code(middle) : std::string(middle);
    marked += word.substr(last);
    text.remove_prefix(end);
    if (text.starts_with(' ')) {
      marked += ' ';
      text.remove_prefix(1);
    }
  }
  return marked;
}

/// A help's parts, which semicolons separate, as sentences.
std::string sentences_of(const OptionRow& option) {
  constexpr std::string_view mark = "; ", fallback = "default ";
  std::string text;
  std::string_view rest = option.help;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(mark), rest.size());
    std::string part = with_codes(rest.substr(0, end), option);
    rest.remove_prefix(std::min(rest.size(), end + mark.size()));
    if (part.starts_with(fallback)) part = "Default: " + part.substr(fallback.size());
    text += fmt::format("{}{}.", text.empty() ? "" : " ", capitalised(part));
  }
  return text;
}

std::string option_form(const OptionRow& option) {
  if (option.form.empty()) return "--" + option.name;
  return fmt::format("--{}{}{}", option.name, is_value_optional(option) ? "" : " ", option.form);
}

std::string name_of(Command command) {
  for (const CommandRow& row : command_table())
    if (row.command == command) return row.name.empty() ? "a job" : code(row.name);
  return "";
}

std::string names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command command : commands) names.push_back(name_of(command));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The commands that take most options of a theme.
std::vector<Command> usual_commands(const std::vector<OptionRow>& options) {
  std::vector<Command> usual;
  std::ptrdiff_t most = 0;
  for (const OptionRow& option : options) {
    const auto count = std::ranges::count(options, option.commands, &OptionRow::commands);
    if (count > most) usual = option.commands;
    most = std::max(most, count);
  }
  return usual;
}

void add_commands(std::string& page) {
  page += "\n## Commands\n";
  add_paragraph(page, "The command is the first word. A line without a command starts a job.");
  page += '\n';
  for (const CommandRow& row : command_table()) {
    OptionRow no_option;
    no_option.help = row.help;
    add_item(page, fmt::format("{}: {}", code(row.usage), sentences_of(no_option)));
  }
}

void add_options(std::string& page) {
  page += "\n## Options\n";
  add_paragraph(page, option_rules);
  std::vector<OptionRow> rest = option_table();
  while (!rest.empty()) {
    const std::string_view theme = rest.front().theme;
    std::vector<OptionRow> options;
    for (const OptionRow& option : rest)
      if (option.theme == theme) options.push_back(option);
    std::erase_if(rest, [&](const OptionRow& option) { return option.theme == theme; });
    const std::vector<Command> usual = usual_commands(options);
    page += fmt::format("\n### {}\n", theme);
    add_paragraph(page, fmt::format("For {}, unless an option says otherwise.", names_of(usual)));
    page += '\n';
    for (const OptionRow& option : options)
      add_item(page, fmt::format("{}: {}{}", code(option_form(option)), sentences_of(option),
                                 option.commands == usual
                                     ? ""
                                     : fmt::format(" For {}.", names_of(option.commands))));
  }
}

void add_options_by_command(std::string& page) {
  page += "\n## Options by command\n";
  for (const CommandRow& row : distinct_commands()) {
    std::vector<std::string> names;
    for (const OptionRow& option : option_table())
      if (takes(row.command, option)) names.push_back("--" + option.name);
    if (names.empty()) continue;
    page += fmt::format("\n{}:\n\n```text\n", row.name.empty() ? "A job" : code(row.name));
    add_wrapped(page, "", 0, fmt::format("{}", fmt::join(names, " ")));
    page += "```\n";
  }
}

void add_exit_codes(std::string& page) {
  page += "\n## Exit codes\n\n";
  for (const ExitRow& row : exit_table())
    add_item(page, fmt::format("`{}`: {}.{}{}", static_cast<int>(row.code), capitalised(row.words),
                               row.more.empty() ? "" : " ", row.more));
  add_paragraph(page, exit_note);
}

void add_variables(std::string& page) {
  page += "\n## Environment variables\n";
  add_paragraph(page, "The program reads these variables. All of them may be absent.");
  page += '\n';
  constexpr std::size_t few = 3;
  for (const VariableRow& row : environment_table()) {
    if (row.names.size() <= few) {
      add_item(page, fmt::format("{}: {}", codes_of(row.names), row.help));
    } else {
      add_item(page, codes_of(row.names));
      page += '\n';
      add_wrapped(page, "  ", 2, row.help);
    }
  }
}

void add_script_variables(std::string& page) {
  page += "\n## Variables of batch scripts\n";
  add_paragraph(page,
                "A script that `dstune-mpi batch` prints has settings. A variable of the same name "
                "overrides a setting when you submit the script.");
  page += '\n';
  for (const ScriptVariable& row : script_variable_table())
    add_item(page,
             fmt::format("{}: {}{}", code(row.name), row.help,
                         row.fallback.empty() ? "" : fmt::format(" Default: {}.", row.fallback)));
}

}  // namespace

std::string options_page() {
  std::string page =
      "<!-- Generated by dstune-reference docs: do not edit. -->\n\n"
      "# Commands, options, exit codes and variables\n";
  add_paragraph(
      page,
      "`dstune-mpi help` prints all options, and `dstune-mpi help plan` those that one "
      "command takes. [Running a job](running.md) says how to use them. A space, `space.json`, "
      "is a DeepSpeed config with lists of candidates.");
  page +=
      "\n- [Commands](#commands)\n"
      "- [Options](#options)\n"
      "- [Options by command](#options-by-command)\n"
      "- [Exit codes](#exit-codes)\n"
      "- [Environment variables](#environment-variables)\n"
      "- [Variables of batch scripts](#variables-of-batch-scripts)\n";
  add_commands(page);
  add_options(page);
  add_options_by_command(page);
  add_exit_codes(page);
  add_variables(page);
  add_script_variables(page);
  return page;
}

}  // namespace dstune
