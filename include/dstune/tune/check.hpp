#pragma once
/// `dstune-mpi check`: what each rank of a job has, how fast it is, and which are slower than their
/// like. The first command on a machine that nobody has tuned on.

#include <string>

#include "dstune/base/error.hpp"
#include "dstune/tune/job.hpp"

namespace dstune {

class Watchdog;

/// Measures all ranks at once, then their collectives, and prints on rank 0: a table, or an object
/// with `options.json_output`. Writes no file. no_device where something does not work; a slow rank
/// is named and is none. A rank that does not answer ends the job from rank 0, and where the
/// watchdog ends it, rank 0 prints what is known. It takes backend, format and verbose of the
/// options. Collective over the world. Throws MpiError.
ExitCode check_machine(const JobOptions& options, bool thread_multiple, Watchdog& watchdog);

/// Prints, as rank 0, that a check ended before check_machine(); with `options.json_output` alone.
/// Local.
void print_unfinished_check(const JobOptions& options, ExitCode code, const std::string& reason);

}  // namespace dstune
