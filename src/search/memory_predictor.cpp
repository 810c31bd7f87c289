#include "memory_predictor.hpp"

#include <algorithm>

#include "dstune/plan/target_memory.hpp"

namespace dstune {

namespace {

/// By name; they add up to the arena. What lies free between tensors is `gaps`.
std::map<std::string, std::int64_t> categories_of(const MemoryPlan& memory) {
  std::map<std::string, std::int64_t> categories;
  for (int category = 0; category < num_categories; ++category)
    categories[std::string(to_text(static_cast<Category>(category)))] =
        memory.categories_at_peak[static_cast<std::size_t>(category)];
  categories["gaps"] = memory.arena_bytes - memory.peak_live_bytes;
  return categories;
}

/// Which states there are and which temporaries, not by which numbers they are updated.
OptimizerConfig what_takes_memory(const OptimizerConfig& optimizer) {
  OptimizerConfig result;
  result.kind = optimizer.kind;
  result.torch_adam = optimizer.torch_adam;
  result.momentum = optimizer.momentum != 0 ? 1 : 0;
  result.weight_decay = optimizer.weight_decay != 0 ? 1 : 0;
  return result;
}

}  // namespace

Prediction MemoryPredictor::predict(const Experiment& experiment) {
  TrainingConfig config = experiment.config;
  config.optimizer = what_takes_memory(config.optimizer);
  const int group_size = experiment.shape.size();
  auto& alike = known_[config.micro_batch];
  const auto found = std::find_if(alike.begin(), alike.end(), [&](const Known& known) {
    return known.group_size == group_size && known.config == config;
  });
  if (found != alike.end()) return found->prediction;

  Prediction prediction;
  // Partitions are padded to the same size, so that ranks can not differ: one plan is every rank's.
  rebuild_step_plan(plan_, job_->model, config, group_size, 0, *workspaces_);
  prediction.host_memory_bytes = plan_.host_memory.arena_bytes;
  prediction.peak_memory_bytes = plan_.memory.arena_bytes + prediction.host_memory_bytes;
  prediction.host_categories = categories_of(plan_.host_memory);
  prediction.disk_bytes = plan_.disk.arena_bytes;
  prediction.categories = categories_of(plan_.memory);
  for (const auto& [name, bytes] : prediction.host_categories) prediction.categories[name] += bytes;
  prediction.ranks = {{0, group_size - 1, prediction.peak_memory_bytes, prediction.categories}};
  prediction.target_memory_bytes =
      target_memory(job_->model, config, group_size, job_->target).total_bytes;
  alike.push_back({config, group_size, prediction});
  return prediction;
}

}  // namespace dstune
