#pragma once
/// `dstune-mpi check FILE...`

#include "options.hpp"

namespace dstune {

/// Checks the files of the command line and prints what is said of them to stdout: a line each, or
/// one JSON object. bad_input where a file has an error; with --strict a warning, too. Local.
ExitCode check_files(const CommandLine& line);

}  // namespace dstune
