#pragma once
/// How failures on rank 0 end a job.

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"

namespace dstune {

/// Runs rank 0's preparation and turns its failures into a message and an exit code.
template <class Work>
ExitCode guarded(Work&& work) {
  try {
    return work();
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) log::error(problem.text());
    return ExitCode::bad_input;
  } catch (const UsageError& error) {
    log::error(error.what());
    return ExitCode::usage;
  } catch (const IoError& error) {
    log::error(error.what());
    return ExitCode::not_writable;
  }
}

}  // namespace dstune
