#pragma once
/// The command line. Local.

#include <optional>
#include <string>
#include <vector>

#include "batch_request.hpp"
#include "dstune/base/log.hpp"
#include "dstune/tune/job.hpp"
#include "option_table.hpp"

namespace dstune {

struct CommandLine {
  Command command = Command::job;
  bool help = false;
  std::string key_help;  ///< the help of a key of space.json, where that is asked for
  bool version = false;
  bool check = false;                           ///< of the machine, or of files; no space
  std::vector<std::string> check_files;         ///< what is checked; none: the machine
  std::optional<std::string> training_command;  ///< --command
  bool is_strict = false;                       ///< --strict
  std::optional<std::string> status_of;         ///< a results folder that is only looked at
  std::optional<BatchRequest> batch;            ///< a script is printed
  JobOptions job;
  log::Level level = log::Level::info;
  std::vector<std::string> understood;  ///< a line for each option that was given
  std::optional<bool> color;            ///< absent: where stderr is a terminal
};

/// Throws UsageError, naming the option, with a hint.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace dstune
