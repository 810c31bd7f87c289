#include "patience.hpp"

#include <algorithm>

#include "dstune/model/parameter_table.hpp"

namespace dstune {
namespace {

/// The slowest machine that an experiment is waited for: a tenth of a slow core.
constexpr double least_flops_per_rank = 1e9;
constexpr double least_patience_s = 60;
/// … and its host, where all ranks at once have pages zeroed and pinned.
constexpr double least_host_bytes_per_s = 5e8;
/// Nobody here knows how long a plug-in's steps take; --trial-timeout says it.
constexpr double plugin_patience_s = 600;
/// Predictions are off by a tenth, machines that others use by a factor.
constexpr double patience_of_steps = 50;
constexpr double patience_of_experiments = 20;
constexpr double least_trial_timeout_s = 300;
/// Where nothing is predicted, as of an experiment that is silent.
constexpr double usual_rest_s = least_patience_s;
constexpr double rest_of_steps = 5;

}  // namespace

double patience_s(const JobSpec& job, const std::optional<double>& trial_timeout_s,
                  const PlannedExperiment& planned, const std::optional<double>& predicted_step_s) {
  const Experiment& experiment = planned.experiment;
  if (job.workload.kind == WorkloadKind::plugin) {
    return std::max(plugin_patience_s, trial_timeout_s.value_or(0));
  }
  if (job.workload.kind == WorkloadKind::synthetic) {
    return least_patience_s + 20 * job.workload.step_time_s;
  }
  const double patience_s =
      least_patience_s +
      static_cast<double>(planned.predicted.host_memory_bytes) / least_host_bytes_per_s;
  if (predicted_step_s) return patience_s + patience_of_steps * *predicted_step_s;
  const auto tokens = static_cast<double>(global_batch(experiment.config, experiment.shape.size()) *
                                          job.sequence_length);
  return patience_s + flops_per_token(job.model, job.sequence_length) * tokens /
                          (least_flops_per_rank * experiment.shape.size());
}

double rest_s(const std::optional<double>& predicted_step_s) {
  return predicted_step_s ? least_rest_s + rest_of_steps * *predicted_step_s : usual_rest_s;
}

double default_trial_timeout_s(double predicted_s) {
  return least_trial_timeout_s + patience_of_experiments * predicted_s;
}

}  // namespace dstune
