#pragma once
/// Predicted memory, remembered for configurations that plan alike. Local.

#include <unordered_map>
#include <vector>

#include "dstune/plan/step_plan.hpp"
#include "dstune/search/planner.hpp"

namespace dstune {

class MemoryPredictor {
 public:
  /// Both outlive it.
  MemoryPredictor(const JobSpec& job, const WorkspaceSizes& workspaces)
      : job_(&job), workspaces_(&workspaces) {}

  Prediction predict(const Experiment& experiment);

 private:
  struct Known {
    TrainingConfig config;  ///< with an optimizer of default rates: they take no memory
    int group_size;
    Prediction prediction;
  };
  StepPlan plan_;  // the latest, for its memory
  const JobSpec* job_;
  const WorkspaceSizes* workspaces_;
  std::unordered_map<std::int64_t, std::vector<Known>> known_;  ///< by micro-batch
};

/// Predicts, and makes the experiment infeasible, with the numbers, where its memory is too large.
void decide_feasibility(const JobSpec& job, const PlannerOptions& options,
                        MemoryPredictor& predictor, PlannedExperiment& planned);

}  // namespace dstune
