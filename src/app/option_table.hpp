#pragma once
/// The tables of commands and options, from which the command line, --help, the manual pages and
/// the shells' completions follow. Local.

#include <string>
#include <string_view>
#include <vector>

namespace dstune {

/// Named by the first word of a command line; `job` where that is no command.
enum class Command { job, plan, check, status, batch, help };

/// A command with two forms has a row for each.
struct CommandRow {
  Command command;
  std::string name;   ///< "plan"; empty for a job
  std::string usage;  ///< "dstune-mpi plan [options] space.json"
  std::string help;   ///< one sentence, without its full stop
};

/// The kind of an option's value, for those who complete it.
enum class ValueKind { none, word, file, folder, number, text };

struct OptionRow {
  std::string name;  ///< without dashes: "results-dir"
  std::string form;  ///< "DIR"; empty for a switch; "[=FILE]" where the value may be left out
  std::string help;
  ValueKind kind = ValueKind::none;
  std::vector<std::string> words;  ///< of ValueKind::word: all that it can be
  bool repeats = false;
  std::vector<Command> commands;  ///< those that take it
  std::string_view theme = {};    ///< "Search": the options of a theme stand together
};

/// For the manual pages; `1` is what is typed.
inline constexpr std::string_view option_rules =
    "An option overrides the same setting in the space. It may stand before or behind the file. "
    "Names are not abbreviated. A value stands behind a blank or behind `=`. A duration is written "
    "as in 90s, 10m, 1.5h or 1:30:00.";

/// All rows, in the order of --help.
const std::vector<CommandRow>& command_table();
const std::vector<OptionRow>& option_table();

/// The names of all commands, each once.
std::vector<std::string_view> command_names();
/// The row of an option, without dashes; null where there is none.
const OptionRow* find_option(std::string_view name);
bool takes(Command command, const OptionRow& option);
/// Tells whether the option may stand without its value.
bool is_value_optional(const OptionRow& option);

}  // namespace dstune
