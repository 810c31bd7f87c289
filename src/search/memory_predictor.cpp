#include "memory_predictor.hpp"

#include <algorithm>

#include "dstune/plan/memory.hpp"

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

/// The fewest micro-steps that have a middle one at every stage: more of them repeat it.
constexpr std::int64_t folded_micro_steps = 3;

/// Which states there are and which temporaries, not by which numbers they are updated.
TrainingConfig memory_key(const TrainingConfig& config) {
  TrainingConfig result = config;
  result.accumulation_steps = std::min(config.accumulation_steps, folded_micro_steps);
  result.optimizer = {};
  result.optimizer.kind = config.optimizer.kind;
  result.optimizer.torch_adam = config.optimizer.torch_adam;
  result.optimizer.momentum = config.optimizer.momentum != 0 ? 1 : 0;
  result.optimizer.weight_decay = config.optimizer.weight_decay != 0 ? 1 : 0;
  return result;
}

}  // namespace

Prediction MemoryPredictor::predict(const Experiment& experiment) {
  const int group_size = experiment.shape.size();
  const auto [found, is_new] = known_[group_size].try_emplace(memory_key(experiment.config));
  if (is_new) found->second = prediction_of(found->first, group_size);
  return found->second;
}

Prediction MemoryPredictor::prediction_of(const TrainingConfig& config, int group_size) {
  Prediction prediction;
  // Partitions are padded to the same size, so that ranks can not differ: one plan is every rank's.
  const StepPlan& plan = planner_.plan(config, group_size);
  prediction.host_memory_bytes = plan.host_memory.arena_bytes;
  prediction.peak_memory_bytes = plan.memory.arena_bytes + prediction.host_memory_bytes;
  prediction.host_categories = categories_of(plan.host_memory);
  prediction.disk_bytes = plan.disk.arena_bytes;
  prediction.categories = categories_of(plan.memory);
  for (const auto& [name, bytes] : prediction.host_categories) prediction.categories[name] += bytes;
  prediction.ranks = {{0, group_size - 1, prediction.peak_memory_bytes, prediction.categories}};
  prediction.target_memory_bytes =
      target_memory(job_->model, config, group_size, job_->target).total_bytes;
  return prediction;
}

}  // namespace dstune
