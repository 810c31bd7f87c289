#pragma once
/// What an experiment runs: built once, then stepped. A failure on one rank becomes a status that
/// its group agrees on (see measuring.hpp), so everything that may fail belongs into build().

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "dstune/base/wait.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/workload.h"

namespace dstune {

/// One optimizer step as one rank saw it.
struct StepSample {
  double loss = 0;       ///< mean over the global batch before the update; NaN where there is none
  double step_s = 0;     ///< this rank's time
  double forward_s = 0;  ///< summed over the micro-steps
  double backward_s = 0;
  double update_s = 0;
  bool skipped = false;   ///< the update was left out (fp16): not a step to be timed; on every rank
  std::string failure{};  ///< why the training ends here, or empty; the same on every rank
};

class Workload {
 public:
  virtual ~Workload() = default;
  /// Everything that may fail for want of memory, without talking to peers unless it meets them
  /// first. Throws OutOfMemory.
  virtual void build() = 0;
  /// First state; may use the group. Collective over the group.
  virtual void initialize() = 0;
  /// Optimizer step number `step` (from 0). Collective over the group.
  virtual StepSample step(std::int64_t step) = 0;
  [[nodiscard]] virtual PeakMemory peak_memory() const = 0;
  [[nodiscard]] virtual double flops_per_step() const = 0;
  /// Micro-steps of a step, over which forward_s and backward_s are sums.
  [[nodiscard]] virtual std::int64_t micro_steps() const = 0;
  /// Steps before all are alike, which are never timed. Known before build().
  [[nodiscard]] virtual int min_warmup_steps() const = 0;
  /// Whether step times are given and not measured: then exactly the least number of steps is
  /// warm-up, since nothing has to become steady.
  [[nodiscard]] virtual bool has_simulated_times() const = 0;
  /// Whether initialize() and step() talk to peers without meeting them first. What they throw then
  /// can not be agreed on, because the peers are inside a collective; it ends as CollectiveError.
  [[nodiscard]] virtual bool talks_to_peers() const = 0;
};

/// Another workload with something changed: overrides that, and all else is the other's. Nothing of
/// a Workload has a default, so that what this forgets to forward does not compile.
class ForwardingWorkload : public Workload {
 public:
  void build() override { workload_->build(); }
  void initialize() override { workload_->initialize(); }
  StepSample step(std::int64_t step) override { return workload_->step(step); }
  [[nodiscard]] PeakMemory peak_memory() const override { return workload_->peak_memory(); }
  [[nodiscard]] double flops_per_step() const override { return workload_->flops_per_step(); }
  [[nodiscard]] std::int64_t micro_steps() const override { return workload_->micro_steps(); }
  [[nodiscard]] int min_warmup_steps() const override { return workload_->min_warmup_steps(); }
  [[nodiscard]] bool has_simulated_times() const override {
    return workload_->has_simulated_times();
  }
  [[nodiscard]] bool talks_to_peers() const override { return workload_->talks_to_peers(); }

 protected:
  explicit ForwardingWorkload(std::unique_ptr<Workload> workload)
      : workload_(std::move(workload)) {}

 private:
  std::unique_ptr<Workload> workload_;
};

struct WorkloadContext {
  const WorkloadSpec* spec;
  const ModelSpec* model;
  const TrainingConfig* config;
  const std::string* experiment_name;
  const MeasureOptions* measure;
  std::int64_t seed;
  Device* device;
  ProcessGroup* group;
  const Waiter* waiter;  ///< for waits that are not the group's; outlives the workload
  const std::string* ds_config = nullptr;  ///< plugin: the experiment's, as JSON
};

/// Local.
std::unique_ptr<Workload> make_workload(const WorkloadContext& context);

/// The functions of a workload plug-in, loaded.
struct PluginFunctions {
  decltype(&dstune_workload_build) build = nullptr;
  decltype(&dstune_workload_step) step = nullptr;
  decltype(&dstune_workload_report) report = nullptr;
  decltype(&dstune_workload_destroy) destroy = nullptr;
};

/// Of a file that has passed check_plugin_library(). Loads it once a process and never unloads it.
/// `path` has a slash in it. Throws Error where something that it needs is missing: then none of it
/// has run. Local.
const PluginFunctions& load_plugin(const std::string& path);

}  // namespace dstune
