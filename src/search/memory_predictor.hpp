#pragma once
/// Predicted memory, remembered for configurations that plan alike, and whether it fits. Local.

#include <unordered_map>

#include "dstune/base/hash.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/plan/memory.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/search/planner.hpp"
#include "packed_members.hpp"

namespace dstune {

class MemoryPredictor {
 public:
  /// Job and workspaces outlive it. `plans_here`: our own step's memory is wanted, too.
  MemoryPredictor(const JobSpec& job, const WorkspaceSizes& workspaces, bool plans_here = true)
      : planner_(job.model, workspaces),
        target_planner_(job.model, job.target),
        plans_here_(plans_here || job.target.framework == TargetFramework::self) {}

  /// The fullest rank's bytes. Throws OverflowError where that is more than any machine has.
  Prediction predict(const Experiment& experiment);

 private:
  void fill(const TrainingConfig& config, int group_size, Prediction& prediction);
  void fill_target(const TrainingConfig& config, int group_size, Prediction& prediction);

  StepPlanner planner_;
  TargetPlanner target_planner_;
  bool plans_here_;
  /// By group size, and by the configuration as far as it takes memory.
  std::unordered_map<Digest, TextPool::Place, DigestHash> known_;
  PredictionPool predictions_;
};

/// Predicts, and makes the experiment infeasible, with the numbers, where its memory is too large.
void decide_feasibility(const JobSpec& job, const PlannerOptions& options,
                        MemoryPredictor& predictor, PlannedExperiment& planned);

}  // namespace dstune
