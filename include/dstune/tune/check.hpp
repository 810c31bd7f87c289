#pragma once
/// `dstune-mpi check`: what each rank of a job has, how fast it is, and which are slower than their
/// like. The first command on a machine that nobody has tuned on.

#include "dstune/base/error.hpp"
#include "dstune/tune/job.hpp"

namespace dstune {

/// Measures all ranks at once, then their collectives, and prints on rank 0: a table, or an object
/// with `options.json_output`. Writes no file. no_device where something does not work; a slow rank
/// is named and is none. A rank that does not answer ends the job from rank 0. Of the options it
/// takes backend, format and verbose. Collective over the world. Throws MpiError.
ExitCode check_machine(const JobOptions& options, bool thread_multiple);

}  // namespace dstune
