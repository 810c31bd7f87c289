#pragma once
/// The text of --help, and the options as Boost is to know them. Local.

#include <string>

#include <boost/program_options/options_description.hpp>

#include "option_table.hpp"

namespace dstune {

/// The options that a command takes; a job's help has those of all commands.
[[nodiscard]] boost::program_options::options_description described_options(Command command);

/// The text that --help prints: of one command, or of the whole program for `job` and `help`.
[[nodiscard]] std::string help_text(Command command);

}  // namespace dstune
