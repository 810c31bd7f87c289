#include "memory_predictor.hpp"

#include <algorithm>

#include "dstune/plan/target_memory.hpp"

namespace dstune {

Prediction MemoryPredictor::predict(const Experiment& experiment) {
  TrainingConfig config = experiment.config;
  const auto kind = config.optimizer.kind;
  config.optimizer = {};
  config.optimizer.kind = kind;
  const int group_size = experiment.shape.size();
  auto& alike = known_[config.micro_batch];
  const auto found = std::find_if(alike.begin(), alike.end(), [&](const Known& known) {
    return known.group_size == group_size && known.config == config;
  });
  if (found != alike.end()) return found->prediction;

  rebuild_step_plan(plan_, job_->model, config, group_size, 0, *workspaces_);
  Prediction prediction;
  prediction.peak_memory_bytes = plan_.memory.arena_bytes;
  for (int category = 0; category < num_categories; ++category) {
    prediction.categories[std::string(to_text(static_cast<Category>(category)))] =
        plan_.memory.categories_at_peak[category];
  }
  prediction.target_memory_bytes =
      target_memory(job_->model, config, group_size, job_->target).total_bytes;
  alike.push_back({config, group_size, prediction});
  return prediction;
}

}  // namespace dstune
