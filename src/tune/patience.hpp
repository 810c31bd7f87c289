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

/// How long an experiment may take that is predicted to take so long; likewise generous.
double default_trial_timeout_s(double predicted_s);

}  // namespace dstune
