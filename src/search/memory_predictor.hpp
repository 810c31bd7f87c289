#pragma once
/// Predicted memory, remembered for configurations that plan alike. Local.

#include <map>
#include <unordered_map>

#include "dstune/core/training_config_hash.hpp"
#include "dstune/plan/step_planner.hpp"
#include "dstune/search/planner.hpp"

namespace dstune {

class MemoryPredictor {
 public:
  /// Both outlive it.
  MemoryPredictor(const JobSpec& job, const WorkspaceSizes& workspaces)
      : job_(&job), planner_(job.model, workspaces) {}

  Prediction predict(const Experiment& experiment);

 private:
  /// Of a configuration as far as it takes memory.
  [[nodiscard]] Prediction prediction_of(const TrainingConfig& config, int group_size);

  const JobSpec* job_;
  StepPlanner planner_;
  /// By group size.
  std::map<int, std::unordered_map<TrainingConfig, Prediction, TrainingConfigHash>> known_;
};

/// Predicts, and makes the experiment infeasible, with the numbers, where its memory is too large.
void decide_feasibility(const JobSpec& job, const PlannerOptions& options,
                        MemoryPredictor& predictor, PlannedExperiment& planned);

}  // namespace dstune
