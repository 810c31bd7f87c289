#pragma once
/// The times of a plan, and where they are from. Local.

#include <memory>

#include "dstune/device/device.hpp"
#include "dstune/report/dry_run.hpp"
#include "profile/prediction.hpp"
#include "start/planned_job.hpp"

namespace dstune {

/// Returns the predictor of a plan's times. Nothing of this machine stands in for another: there
/// they follow from a measured profile, or from published rates. For this machine they follow from
/// what an earlier job measured, whose journal is in the results folder, else from timing it now.
/// Null where nothing tells them; then `plan.no_speed` says why. `device_description`:
/// RankDevice's.
std::unique_ptr<JobPredictor> predictor_of_plan(const PlannedJob& ready, Device& device,
                                                const std::string& device_description,
                                                DryRun& plan);

}  // namespace dstune
