#pragma once
/// Plans of one model, one after another. Local.

#include <memory>

#include "dstune/plan/step_plan.hpp"

namespace dstune {

/// What plans share is made once: the table of parameters, and stage 3's gathers for all
/// configurations that gather alike. The memory of a plan is used again by the next one. So plans
/// are built several times faster than by build_step_plan.
class StepPlanner {
 public:
  /// The workspaces outlive it.
  StepPlanner(ModelSpec model, const WorkspaceSizes& workspaces);
  StepPlanner(StepPlanner&& other) noexcept;
  StepPlanner& operator=(StepPlanner&& other) noexcept;
  ~StepPlanner();

  /// As build_step_plan. It holds until the next call.
  const StepPlan& plan(const TrainingConfig& config, int group_size, int group_rank = 0);

 private:
  friend StepPlan build_step_plan(const ModelSpec& model, const TrainingConfig& config,
                                  int group_size, int group_rank, const WorkspaceSizes& workspaces);
  struct Shared;

  std::unique_ptr<Shared> shared_;
  StepPlan plan_;
};

}  // namespace dstune
