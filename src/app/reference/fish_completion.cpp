#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_facts.hpp"
#include "manuals.hpp"
#include "option_table.hpp"

namespace dstune {
namespace {

/// A text in single quotes, inside which fish reads a backslash.
std::string fish_text(std::string_view text) {
  std::string safe = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') safe += '\\';
    safe += letter;
  }
  return safe + "'";
}

/// "'__dstune_mpi_is job plan; and not __dstune_mpi_has seed'": holds behind one of these commands.
std::string condition(const OptionRow& option) {
  std::string words = "__dstune_mpi_is";
  for (const CommandRow& row : distinct_commands())
    if (takes(row.command, option)) words += " " + shell_name(row);
  return fish_text(option.repeats ? words : words + "; and not __dstune_mpi_has " + option.name);
}

std::string value_flags(const OptionRow& option) {
  switch (option.kind) {
    case ValueKind::none:
      return "";
    case ValueKind::word:
      return fmt::format(" -x -a '{}'", fmt::join(option.words, " "));
    case ValueKind::file:
      return is_value_optional(option) ? " -F" : " -r -F";
    case ValueKind::folder:
      return " -x -a '(__fish_complete_directories)'";
    case ValueKind::number:
    case ValueKind::text:
      break;
  }
  return " -x";
}

std::string line_of(const OptionRow& option) {
  return fmt::format("complete -c dstune-mpi -n {} -l {}{} -d {}\n", condition(option), option.name,
                     value_flags(option), fish_text(brief(option.help)));
}

std::string lines_of_arguments(const CommandRow& row) {
  const CommandArguments arguments = arguments_of(row.command);
  std::string lines;
  if (!arguments.first_words.empty())
    lines += fmt::format(
        "complete -c dstune-mpi -n '__dstune_mpi_is {}; and __dstune_mpi_at 2' "
        "-a '{}'\n",
        row.name, fmt::join(arguments.first_words, " "));
  const std::string is_behind = arguments.first_words.empty() ? "" : "; and not __dstune_mpi_at 2";
  if (arguments.kind == ValueKind::none) return lines;
  return lines + fmt::format("complete -c dstune-mpi -n '__dstune_mpi_is {}{}' -k -a '({})'\n",
                             shell_name(row), is_behind,
                             arguments.kind == ValueKind::folder ? "__fish_complete_directories"
                                                                 : "__dstune_mpi_configs");
}

}  // namespace

std::string fish_completion() {
  std::string text =
      fmt::format(R"(# fish completion for dstune-mpi, generated from its table of options

# Tells whether the command line is one of these commands: job where its first word is none.
function __dstune_mpi_is
    set -l words (commandline -opc)
    set -l command job
    if set -q words[2]; and contains -- $words[2] {}
        set command $words[2]
    end
    contains -- $command $argv
end

# Tells whether an option stands before. Where it is the last word its value is completed.
function __dstune_mpi_has
    set -l words (commandline -opc)
    string match -q -r -- '^--'$argv[1]'(=.*)?$' $words[1..-2]
end

# Tells whether so many words stand before the one that is completed.
function __dstune_mpi_at
    test (count (commandline -opc)) -eq $argv[1]
end

function __dstune_mpi_configs
    set -l word (commandline -ct)
    for ending in {}
        complete -C"__dstune_mpi_none $word" | string match -r -- '.*\.'$ending'(?:\t.*)?$'
    end
    __fish_complete_directories $word
end

complete -c dstune-mpi -f
)",
                  fmt::join(command_names(), " "), fmt::join(config_endings, " "));
  for (const CommandRow& row : distinct_commands()) {
    if (!row.name.empty())
      text += fmt::format("complete -c dstune-mpi -n '__dstune_mpi_at 1' -a {} -d {}\n", row.name,
                          fish_text(brief(row.help)));
    text += lines_of_arguments(row);
  }
  for (const OptionRow& option : option_table()) text += line_of(option);
  return text;
}

}  // namespace dstune
