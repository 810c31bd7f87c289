#pragma once
/// Steps that stay built on a rank from one run to the next. Each has arenas of its own; one at a
/// time has the device. Local.

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {

/// A step with all that its workload points to.
struct BuiltStep {
  BuiltStep(std::string name, TrainingConfig of_config, ProcessGroup& first_group)
      : experiment(std::move(name)), config(std::move(of_config)), group(first_group) {}

  std::string experiment;
  TrainingConfig config;
  SuccessiveGroup group;
  std::vector<int> world_ranks = group.world_ranks();
  RunInput input{};
  Waiter waiter{};                           ///< of the attempt that it runs in
  std::unique_ptr<Device::Arenas> arenas{};  ///< its own while it has not got the device
  std::unique_ptr<Workload> workload{};
  std::int64_t steps = 0;  ///< that it has made; 0: it does not stay built
};

class BuiltSteps {
 public:
  /// The device outlives it.
  explicit BuiltSteps(Device& device) : device_(device) {}
  ~BuiltSteps() { drop_all(); }
  BuiltSteps(const BuiltSteps&) = delete;
  BuiltSteps& operator=(const BuiltSteps&) = delete;

  /// Null where none is built of this configuration on these ranks.
  [[nodiscard]] BuiltStep* find(const std::string& experiment, const TrainingConfig& config,
                                const std::vector<int>& world_ranks);
  /// One without a workload, in place of what there is of the experiment. The memory that
  /// experiments before it have left is given back.
  BuiltStep& add(const std::string& experiment, const TrainingConfig& config, ProcessGroup& group);
  void drop(const std::string& experiment);
  void drop_all();

  /// Gives the device to the step; null: to what does not stay built.
  void use(BuiltStep* step);
  /// Null where none has the device.
  [[nodiscard]] const BuiltStep* used() const { return used_; }

 private:
  void erase(std::list<BuiltStep>::iterator step);

  Device& device_;
  std::list<BuiltStep> steps_;  ///< they stay where they are
  BuiltStep* used_ = nullptr;
  std::unique_ptr<Device::Arenas> others_;  ///< the device's, while a step has it
};

/// A run of a step that stays built. It takes up the device where another one had it.
class RunOfBuilt : public Workload {
 public:
  /// Both outlive it.
  RunOfBuilt(BuiltSteps& steps, BuiltStep& step) : steps_(steps), step_(step) {}

  [[nodiscard]] WorkloadTraits traits() const override { return step_.workload->traits(); }
  void build() override {
    steps_.use(&step_);
    step_.workload->build();
    has_device_ = true;
  }
  void initialize() override {
    take_device();
    step_.workload->initialize();
  }
  StepSample step(std::int64_t step) override {
    take_device();
    return step_.workload->step(step);
  }
  [[nodiscard]] WarmupNeed warmup_need() const override { return step_.workload->warmup_need(); }
  void note_warm_after(int steps) override { step_.workload->note_warm_after(steps); }
  [[nodiscard]] PeakMemory peak_memory() const override {
    steps_.use(&step_);
    return step_.workload->peak_memory();
  }
  [[nodiscard]] std::vector<Fallback> fallbacks() const override {
    return step_.workload->fallbacks();
  }
  [[nodiscard]] double flops_per_step() const override { return step_.workload->flops_per_step(); }

 private:
  /// Waits for the device end with this attempt, too.
  void take_device() {
    if (has_device_ && steps_.used() == &step_) return;
    steps_.use(&step_);
    step_.workload->resume(step_.waiter);
    has_device_ = true;
  }

  BuiltSteps& steps_;
  BuiltStep& step_;
  bool has_device_ = false;  ///< it had it in this run
};

}  // namespace dstune
