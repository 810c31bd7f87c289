#pragma once
/// How often a step of the user's training does what costs time beside the kernels. Local.

#include "dstune/core/calibration.hpp"
#include "dstune/plan/step_planner.hpp"

namespace dstune {

class OverheadCounter {
 public:
  /// The workspaces outlive it.
  OverheadCounter(const ModelSpec& model, const WorkspaceSizes& workspaces);

  /// Of an optimizer step. Bytes are those of ring algorithms.
  [[nodiscard]] Overheads count(const TrainingConfig& config, int group_size);

 private:
  StepPlanner planner_;
  // Of the Hugging Face model.
  double modules_ = 0;  ///< with parameters
  double parameters_ = 0;
};

}  // namespace dstune
