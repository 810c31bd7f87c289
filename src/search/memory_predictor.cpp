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

  const auto plan = build_step_plan(job_->model, config, group_size, 0, *workspaces_);
  Prediction prediction;
  prediction.host_memory_bytes = plan.host_memory.arena_bytes;
  prediction.peak_memory_bytes = plan.memory.arena_bytes + prediction.host_memory_bytes;
  for (int category = 0; category < num_categories; ++category) {
    const std::string name(to_text(static_cast<Category>(category)));
    prediction.categories[name] = plan.memory.categories_at_peak[category];
    prediction.host_categories[name] = plan.host_memory.categories_at_peak[category];
  }
  prediction.target_memory_bytes =
      target_memory(job_->model, config, group_size, job_->target).total_bytes;
  alike.push_back({config, group_size, prediction});
  return prediction;
}

}  // namespace dstune
