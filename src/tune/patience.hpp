#pragma once

#include <optional>

#include "dstune/core/experiment.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// How long an experiment may be silent. Generous: it only has to tell a hang from a slow machine.
/// Of a plug-in as long as a whole trial may take. `predicted_step_s`, where it is known, stands in
/// for the operations of a very slow machine. Taking the host's memory, which is pinned beside a
/// GPU, is a silence, too. Local.
double patience_s(const JobSpec& job, const std::optional<double>& trial_timeout_s,
                  const PlannedExperiment& planned, const std::optional<double>& predicted_step_s);

/// How long a GPU may take, after a failure, to do what it was asked for before it counts as one
/// that hangs. The host is two micro-steps ahead of it at most, and never a step; predictions of
/// that may be off by as much as above. Local.
double rest_s(const std::optional<double>& predicted_step_s);
/// … while the machine is measured, in steps of a few layers.
constexpr double least_rest_s = 10;

/// How long an experiment may take that is predicted to take so long; likewise generous.
double default_trial_timeout_s(double predicted_s);

}  // namespace dstune
