#pragma once
/// How long the experiments of a job will take, and how long they may: the machine is profiled for
/// that, or remembered from the journal. Rank 0.

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "control/attempt_driver.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/train/executor.hpp"
#include "start/preparation.hpp"

namespace dstune {

/// Whether the job's workload has a plan, and something of it is to be run.
[[nodiscard]] bool is_predictable(const Preparation& ready);

/// What a profile means for the experiments of a job. It outlives neither.
class JobPredictor {
 public:
  JobPredictor(const Preparation& ready, DeviceProfile profile);

  // Nothing for an experiment that uses a disk where how fast that is was not measured.
  /// Of an optimizer step, corrected by what was measured so far.
  [[nodiscard]] std::optional<double> step_s(const Experiment& experiment);
  /// samples/s
  [[nodiscard]] std::optional<double> throughput(const Experiment& experiment);
  /// Of warming up and measuring it.
  [[nodiscard]] std::optional<double> experiment_s(const Experiment& experiment);
  void observe(const Experiment& experiment, const Measurement& measurement);
  [[nodiscard]] const DeviceProfile& profile() const { return predictor_.profile(); }

 private:
  [[nodiscard]] bool is_known(const Experiment& experiment) const;

  MeasureOptions measure_;
  CpuWorkspaces workspaces_;
  StepPredictor predictor_;
};

struct MeasuredMachine {
  std::unique_ptr<JobPredictor> predictor;            ///< null where nothing could be measured
  std::map<int, std::int64_t> non_arena_bytes{};      ///< of the processes that took part
  std::map<int, std::int64_t> gpu_non_arena_bytes{};  ///< of their GPUs
};

/// By all groups before the first experiment, or what the journal has of an earlier job that had
/// the same to measure; then written to `profile_path` where that is given. `drain_timeout_s`: as
/// Attempts::Limits'. Throws IoError.
MeasuredMachine measure_machine(const Preparation& ready, AttemptDriver& driver,
                                const std::function<bool()>& is_to_be_ended,
                                const std::optional<std::string>& profile_path,
                                double drain_timeout_s);

/// For a dry run: what this process alone can tell within a second, collectives estimated by the
/// memory's speed. Null where it can tell nothing.
std::unique_ptr<JobPredictor> measure_alone(const Preparation& ready, Device& device);

/// How long an experiment may be silent. Generous: it only has to tell a hang from a slow machine.
/// Of a plug-in as long as a whole trial may take. `predicted_step_s`, where it is known, stands in
/// for the operations of a very slow machine. Taking the host's memory, which is pinned beside a
/// GPU, is a silence, too. Local.
double inactivity_timeout_s(const JobSpec& job, const std::optional<double>& trial_timeout_s,
                            const PlannedExperiment& planned,
                            const std::optional<double>& predicted_step_s);

/// How long a GPU may take, after a failure, to do what it was asked for before it counts as one
/// that hangs. The host is two micro-steps ahead of it at most, and never a step; predictions of
/// that may be off by as much as above. Local.
double drain_timeout_s(const std::optional<double>& predicted_step_s);
/// … while the machine is measured, in steps of a few layers.
constexpr double min_drain_timeout_s = 10;

/// How long an experiment may take that is predicted to take so long; likewise generous.
double default_trial_timeout_s(double predicted_s);

/// What experiments of a job may take.
class TrialLimits {
 public:
  /// `job` outlives it.
  TrialLimits(const JobSpec& job, std::optional<double> trial_timeout_s, bool is_on_gpus,
              double abort_grace_s)
      : job_(job),
        trial_timeout_s_(trial_timeout_s),
        is_on_gpus_(is_on_gpus),
        abort_grace_s_(abort_grace_s) {}

  /// From now on by its predictions; it outlives this.
  void follow(JobPredictor& predictor) { predictor_ = &predictor; }
  [[nodiscard]] Attempts::Limits of(const PlannedExperiment& planned) const;

 private:
  const JobSpec& job_;
  std::optional<double> trial_timeout_s_;
  bool is_on_gpus_;
  double abort_grace_s_;
  JobPredictor* predictor_ = nullptr;
};

}  // namespace dstune
