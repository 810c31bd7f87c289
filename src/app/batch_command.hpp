#pragma once
/// `dstune-mpi batch SYSTEM space.json`

#include "options.hpp"

namespace dstune {

/// Reads the space as a plan does, and prints a batch script for it to stdout; nothing where the
/// space has a problem. Local. Throws UsageError where the space does not fit into the job.
ExitCode print_batch_script(const CommandLine& line);

}  // namespace dstune
