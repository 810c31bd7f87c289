#pragma once
/// --dry-run: prints what would run, and runs nothing. Local, rank 0.

#include "preparation.hpp"

namespace dstune {

/// To stdout. nothing_feasible where nothing is planned.
ExitCode show_plan(const Preparation& ready, const JobOptions& options);

}  // namespace dstune
