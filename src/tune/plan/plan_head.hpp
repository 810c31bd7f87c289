#pragma once
/// The model and the machine of a plan in words: what it is for, and where its figures are from.
/// Local.

#include <vector>

#include "dstune/report/dry_run.hpp"
#include "dstune/tune/job.hpp"
#include "start/planned_job.hpp"

namespace dstune {

/// `device`: this machine's, where the plan is for it.
[[nodiscard]] PlanHead plan_head(const PlannedJob& planned, const JobOptions& options,
                                 const RankDevice& device);
/// The publications, and files, that the head's figures are from.
[[nodiscard]] std::vector<PlanSource> plan_sources(const PlannedJob& planned);

}  // namespace dstune
