#pragma once
/// --dry-run: prints what would run, and runs nothing. Local, rank 0.

#include "dstune/device/device.hpp"
#include "preparation.hpp"

namespace dstune {

/// To stdout, with times where the device can tell them. nothing_feasible where nothing is planned.
ExitCode show_plan(const Preparation& ready, const JobOptions& options, Device& device);

}  // namespace dstune
