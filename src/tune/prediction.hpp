#pragma once
/// How long the experiments of a job will take: the machine is measured for that, or remembered
/// from the journal. Rank 0.

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "dstune/comm/mailbox.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/train/executor.hpp"
#include "preparation.hpp"

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
  std::unique_ptr<JobPredictor> predictor;          ///< null where nothing could be measured
  std::map<int, std::int64_t> outside_bytes{};      ///< of the processes that took part
  std::map<int, std::int64_t> gpu_outside_bytes{};  ///< of their GPUs
  std::uint64_t next_attempt = 1;                   ///< numbers below it were used
  bool is_everybody_back = true;                    ///< no rank is stuck or gone
};

/// By all groups before the first experiment, or what the journal has of an earlier job that had
/// the same to measure; then written to `profile_path` where that is given. Throws IoError.
MeasuredMachine measure_machine(const Preparation& ready, Mailbox& mailbox,
                                const std::function<bool(int)>& is_dead,
                                const std::function<bool()>& is_to_be_ended,
                                const std::optional<std::string>& profile_path, double rest_s);

/// For a dry run: what this process alone can tell within a second, collectives estimated by the
/// memory's speed. Null where it can tell nothing.
std::unique_ptr<JobPredictor> measure_alone(const Preparation& ready, Device& device);

}  // namespace dstune
