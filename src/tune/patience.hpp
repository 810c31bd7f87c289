#pragma once

#include <optional>

#include "dstune/core/experiment.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// How long an experiment may be silent. Generous: it only has to tell a hang from a slow machine.
/// Of a plug-in as long as a whole trial may take. Local.
double patience_s(const JobSpec& job, const std::optional<double>& trial_timeout_s,
                  const Experiment& experiment);

}  // namespace dstune
