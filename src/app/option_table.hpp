#pragma once
/// The tables of commands and options, from which the command line, --help, the manual pages and
/// the shells' completions follow. Local.

#include <string>
#include <vector>

namespace dstune {

/// What the first word of a command line asks for; `job` where it is no command.
enum class Command { job, plan, check, status, batch, help };

struct CommandRow {
  Command command;
  std::string name;   ///< "plan"; empty for a job
  std::string usage;  ///< "dstune-mpi plan [options] space.json"
  std::string help;   ///< one sentence, without its full stop
};

/// What an option's value is, for those who complete it.
enum class ValueKind { none, word, file, folder, number, text };

struct OptionRow {
  std::string name;  ///< without dashes: "results-dir"
  std::string form;  ///< "DIR"; empty for a switch
  std::string help;
  ValueKind kind = ValueKind::none;
  std::vector<std::string> words;  ///< of ValueKind::word: all that it can be
  bool repeats = false;
  std::vector<Command> commands;  ///< those that take it
};

/// All rows, in the order of --help.
const std::vector<CommandRow>& command_table();
const std::vector<OptionRow>& option_table();

}  // namespace dstune
