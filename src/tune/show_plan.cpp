#include "show_plan.hpp"

#include <cstdlib>
#include <iostream>

#include <sys/ioctl.h>
#include <unistd.h>

#include "dstune/report/dry_run.hpp"

namespace dstune {
namespace {

DryRun dry_run_of(const PlannedSpace& space, std::int64_t device_memory_bytes) {
  DryRun plan{.experiments = {},
              .total = space.total,
              .planned = space.planned,
              .infeasible = space.infeasible,
              .pruned = space.pruned,
              .device_memory_bytes = device_memory_bytes};
  for (const PlannedMember& member : space.members) plan.experiments.push_back(member.planned);
  return plan;
}

/// Characters of a line of stdout, 0 where it is none that wraps. mpirun gives its ranks terminals
/// without a size: the user's may be told in COLUMNS.
std::size_t output_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  return columns != nullptr ? std::strtoul(columns, nullptr, 10) : 0;
}

}  // namespace

ExitCode show_plan(const Preparation& ready, const JobOptions& options) {
  const DryRun plan = dry_run_of(ready.space, ready.device_memory_bytes);
  if (options.json_output) {
    std::cout << dry_run_json(plan).dump() << std::endl;
  } else {
    std::cout << dry_run_text(plan, {output_width(), options.verbose}) << std::flush;
  }
  return plan.planned > 0 ? ExitCode::ok : ExitCode::nothing_feasible;
}

}  // namespace dstune
