#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "completion_facts.hpp"
#include "manuals.hpp"
#include "option_table.hpp"

namespace dstune {
namespace {

constexpr std::string_view head =
    R"(# bash completion for dstune-mpi, generated from its table of options

_dstune_mpi_files() {
  local pattern
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(
    compgen -d -- "$1"
    for pattern in "${@:2}"; do compgen -f -X "!$pattern" -- "$1"; done
  )
}

)";

constexpr std::string_view body = R"(_dstune_mpi() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=job joined='' words='' options='' first='' place=1 word
  COMPREPLY=()
  # The equals sign is a word of its own.
  if [[ $current == = ]]; then
    current='' joined=yes
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD - 2]} joined=yes
  fi
  if ((COMP_CWORD > 1)); then
    case ${COMP_WORDS[1]} in
      @NAMES@) command=${COMP_WORDS[1]} place=2 ;;
    esac
  fi
  case $previous in
@VALUES@  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return
  fi
  case $command in
@COMMANDS@  esac
  if [[ $current == -* ]]; then
    # An option that stands there already is not offered again, unless it may repeat.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
      case $word in
        @REPEATED@) ;;
        *) options=${options/" $word "/ } ;;
      esac
    done
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
    return
  fi
  if ((COMP_CWORD == place)) && [[ -n $first ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$first" -- "$current")
    return
  fi
  case $command in
@ARGUMENTS@  esac
  if ((COMP_CWORD == 1)); then
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "@WORDS@" -- "$current")
  fi
}

complete -F _dstune_mpi dstune-mpi
)";

std::string replaced(std::string text, std::string_view name, const std::string& by) {
  const std::size_t at = text.find(name);
  return text.replace(at, name.size(), by);
}

/// The call that offers files of configs.
std::string bash_configs() {
  return fmt::format("_dstune_mpi_files \"$current\" '*.{}'", fmt::join(config_endings, "' '*."));
}

constexpr std::string_view any_file = "_dstune_mpi_files \"$current\" '*'";
constexpr std::string_view any_folder = "_dstune_mpi_files \"$current\"";

/// "    --import | --results-dir) …; return ;;" of the options of some kinds.
std::string branch_of_kinds(const std::vector<ValueKind>& kinds, std::string_view offered) {
  std::vector<std::string> names;
  for (const OptionRow& option : option_table())
    if (std::ranges::find(kinds, option.kind) != kinds.end() && !is_value_optional(option))
      names.push_back("--" + option.name);
  return fmt::format("    {})\n{}      return\n      ;;\n", fmt::join(names, " | \\\n      "),
                     offered.empty() ? "" : fmt::format("      {}\n", offered));
}

std::string branches_of_values() {
  std::string text;
  for (const OptionRow& option : option_table()) {
    if (option.kind == ValueKind::word)
      text += fmt::format("    --{})\n      words=\"{}\"\n      ;;\n", option.name,
                          fmt::join(option.words, " "));
    // Such a value stands behind the equals sign alone.
    if (is_value_optional(option))
      text += fmt::format("    --{})\n      [[ -z $joined ]] || {{ {}; return; }}\n      ;;\n",
                          option.name, any_file);
  }
  return text + branch_of_kinds({ValueKind::file}, any_file) +
         branch_of_kinds({ValueKind::folder}, any_folder) +
         branch_of_kinds({ValueKind::number, ValueKind::text}, "");
}

std::string branch_of_command(const CommandRow& row) {
  std::string options = " ";
  for (const OptionRow& option : option_table())
    if (takes(row.command, option)) options += "--" + option.name + " ";
  std::string lines = fmt::format("    {})\n      options=\"{}\"\n", shell_name(row), options);
  const std::vector<std::string> first = arguments_of(row.command).first_words;
  if (!first.empty()) lines += fmt::format("      first=\"{}\"\n", fmt::join(first, " "));
  return lines + "      ;;\n";
}

std::string repeated_options() {
  std::vector<std::string> names;
  for (const OptionRow& option : option_table())
    if (option.repeats) names.push_back("--" + option.name);
  return fmt::format("{}", fmt::join(names, " | "));
}

std::string arguments_branch(const CommandRow& row) {
  const ValueKind kind = arguments_of(row.command).kind;
  if (kind == ValueKind::none) return "";
  return fmt::format("    {}) {} ;;\n", shell_name(row),
                     kind == ValueKind::folder ? std::string(any_folder) : bash_configs());
}

}  // namespace

std::string bash_completion() {
  std::string commands, arguments;
  for (const CommandRow& row : distinct_commands()) {
    commands += branch_of_command(row);
    arguments += arguments_branch(row);
  }
  const std::vector<std::string_view> names = command_names();
  std::string text(body);
  text = replaced(std::move(text), "@NAMES@", fmt::format("{}", fmt::join(names, " | ")));
  text = replaced(std::move(text), "@VALUES@", branches_of_values());
  text = replaced(std::move(text), "@COMMANDS@", commands);
  text = replaced(std::move(text), "@REPEATED@", repeated_options());
  text = replaced(std::move(text), "@ARGUMENTS@", arguments);
  text = replaced(std::move(text), "@WORDS@", fmt::format("{}", fmt::join(names, " ")));
  return std::string(head) + text;
}

}  // namespace dstune
