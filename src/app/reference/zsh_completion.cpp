#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_facts.hpp"
#include "dstune/core/launch_line.hpp"
#include "manuals.hpp"
#include "option_table.hpp"

namespace dstune {
namespace {

/// A text inside a specification of _arguments.
std::string safe(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') escaped += '\\';
    escaped += letter;
  }
  return escaped;
}

std::string offered_values(const OptionRow& option) {
  switch (option.kind) {
    case ValueKind::word:
      return fmt::format("({})", fmt::join(option.words, " "));
    case ValueKind::file:
      return "_files";
    case ValueKind::folder:
      return "_files -/";
    case ValueKind::none:
    case ValueKind::number:
    case ValueKind::text:
      break;
  }
  return " ";
}

/// '*--experiments=[run exactly this experiment file]:FILE:_files'
std::string specification(const OptionRow& option) {
  std::string text = option.repeats ? "*--" : "--";
  text += option.name;
  if (!option.form.empty()) text += is_value_optional(option) ? "=-" : "=";
  text += fmt::format("[{}]", safe(brief(option.help)));
  if (!option.form.empty())
    text += fmt::format("{}:{}:{}", is_value_optional(option) ? ":" : "",
                        is_value_optional(option) ? "value" : safe(option.form),
                        offered_values(option));
  return shell_quote(text);
}

std::string zsh_configs() {
  return fmt::format("_files -g \"*.({})(-.)\"", fmt::join(config_endings, "|"));
}

std::string zsh_branch(const CommandRow& row) {
  std::string lines = fmt::format("    {})\n      arguments=(\n", shell_name(row));
  for (const OptionRow& option : option_table())
    if (takes(row.command, option)) lines += "        " + specification(option) + "\n";
  const CommandArguments arguments = arguments_of(row.command);
  if (row.command == Command::job)
    lines += "        '1: :_dstune_mpi_first'\n";
  else if (!arguments.first_words.empty())
    lines += fmt::format("        '1: :({})'\n", fmt::join(arguments.first_words, " "));
  if (row.command != Command::job && arguments.kind != ValueKind::none)
    lines += fmt::format("        '{}:{}'\n",
                         arguments.repeats               ? "*: "
                         : arguments.first_words.empty() ? "1: "
                                                         : "2: ",
                         arguments.kind == ValueKind::folder ? "_files -/" : "_dstune_mpi_configs");
  return lines + "      )\n      ;;\n";
}

}  // namespace

std::string zsh_completion() {
  std::string branches, commands;
  for (const CommandRow& row : distinct_commands()) {
    branches += zsh_branch(row);
    if (!row.name.empty())
      commands += "    " + shell_quote(row.name + ":" + safe(brief(row.help))) + "\n";
  }
  return fmt::format(R"(#compdef dstune-mpi
# zsh completion for dstune-mpi, generated from its table of options

_dstune_mpi_configs() {{
  {}
}}

# The first word is a command or a space; behind an option it is a space.
_dstune_mpi_first() {{
  local -a commands
  commands=(
{}  )
  (( at_first_word )) && _describe -t commands command commands
  _dstune_mpi_configs
}}

_dstune-mpi() {{
  local command=job
  local -a arguments
  local -i at_first_word=$(( CURRENT == 2 ))
  if (( CURRENT > 2 )); then
    case $words[2] in
      ({}))
        command=$words[2]
        shift words
        (( CURRENT-- ))
        ;;
    esac
  fi
  case $command in
{}  esac
  _arguments : $arguments
}}

_dstune-mpi "$@"
)",
                     zsh_configs(), commands, fmt::join(command_names(), "|"), branches);
}

}  // namespace dstune
