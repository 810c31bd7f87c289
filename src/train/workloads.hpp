#pragma once
/// The kinds of workloads.

#include <memory>
#include <string>
#include <vector>

#include "dstune/plan/step_plan.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/train/workload.hpp"
#include "plugin/plugin_group.hpp"

namespace dstune::train {

/// The training step of a transformer, as planned.
class TransformerWorkload : public Workload {
 public:
  explicit TransformerWorkload(const WorkloadContext& context) : context_(context) {}

  void build() override;
  void initialize() override { executor_->initialize(); }
  StepSample step(std::int64_t step) override;
  [[nodiscard]] PeakMemory peak_memory() const override;
  [[nodiscard]] double flops_per_step() const override;
  [[nodiscard]] std::int64_t micro_steps() const override {
    return context_.config->accumulation_steps;
  }
  [[nodiscard]] int min_warmup_steps() const override {
    return steps_until_alike(*context_.device);
  }
  [[nodiscard]] bool has_simulated_times() const override { return false; }
  [[nodiscard]] bool talks_to_peers() const override { return true; }

 private:
  WorkloadContext context_;
  StepPlan plan_;
  std::unique_ptr<Executor> executor_;
};

/// Without training: a series of step times that starts anew when it is exhausted.
class SimulatedTimes : public Workload {
 public:
  void initialize() override {}
  StepSample step(std::int64_t step) override;
  [[nodiscard]] double flops_per_step() const override { return flops_per_step_; }
  [[nodiscard]] std::int64_t micro_steps() const override { return 1; }
  [[nodiscard]] int min_warmup_steps() const override { return 0; }
  [[nodiscard]] bool has_simulated_times() const override { return true; }
  [[nodiscard]] bool talks_to_peers() const override { return false; }

 protected:
  /// A step waits `time_scale` times as long as it is said to take.
  SimulatedTimes(const WorkloadContext& context, double time_scale);
  std::vector<double> step_times_s_;

 private:
  void wait(double wait_s) const;

  double flops_per_step_;
  double time_scale_;
  const Waiter* waiter_;
};

class SyntheticWorkload : public SimulatedTimes {
 public:
  explicit SyntheticWorkload(const WorkloadContext& context);
  void build() override {}
  [[nodiscard]] PeakMemory peak_memory() const override;
};

/// One experiment of a recorded table.
class ReplayWorkload : public SimulatedTimes {
 public:
  explicit ReplayWorkload(const WorkloadContext& context);
  /// Throws RecordedStatus, and Error for a name or a row that is not as it should be.
  void build() override;
  [[nodiscard]] PeakMemory peak_memory() const override;

 private:
  const WorkloadSpec& spec_;
  const std::string& name_;
  std::int64_t peak_memory_bytes_ = 0;
};

/// A workload of the user's own, from a shared library (dstune/workload.h).
class PluginWorkload : public Workload {
 public:
  /// Throws Error where the library can not be loaded.
  explicit PluginWorkload(const WorkloadContext& context);
  ~PluginWorkload() override;
  PluginWorkload(const PluginWorkload&) = delete;
  PluginWorkload& operator=(const PluginWorkload&) = delete;

  /// Collective over the group. Throws RecordedStatus.
  void build() override;
  void initialize() override {}
  StepSample step(std::int64_t step) override;
  [[nodiscard]] PeakMemory peak_memory() const override;
  [[nodiscard]] double flops_per_step() const override;
  [[nodiscard]] std::int64_t micro_steps() const override {
    return context_.config->accumulation_steps;
  }
  [[nodiscard]] int min_warmup_steps() const override { return 0; }
  [[nodiscard]] bool has_simulated_times() const override { return false; }
  /// It meets them first.
  [[nodiscard]] bool talks_to_peers() const override { return false; }

 private:
  dstune_status report();
  void check_usage() const;

  WorkloadContext context_;
  const PluginFunctions& functions_;
  PluginGroup group_;
  void* workload_ = nullptr;
  bool is_built_ = false;
  dstune_usage usage_{};
};

}  // namespace dstune::train
