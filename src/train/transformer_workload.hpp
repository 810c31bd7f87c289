#pragma once
/// The training step of a transformer, as planned.

#include <memory>

#include "dstune/plan/step_plan.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/train/workload.hpp"

namespace dstune::train {

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
  [[nodiscard]] int least_warmup_steps() const override {
    return steps_until_alike(*context_.device);
  }

 private:
  WorkloadContext context_;
  StepPlan plan_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace dstune::train
