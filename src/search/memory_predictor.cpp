#include "memory_predictor.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/checked.hpp"
#include "dstune/base/text.hpp"
#include "dstune/plan/memory.hpp"

namespace dstune {

namespace {

using Bytes = std::map<std::string, std::int64_t>;  ///< by name

/// They add up to the arena. The free bytes between tensors are `gaps`.
Bytes categories_of(const MemoryPlan& memory) {
  Bytes categories;
  for (int category = 0; category < num_categories; ++category)
    categories[std::string(to_text(static_cast<Category>(category)))] =
        memory.categories_at_peak[static_cast<std::size_t>(category)];
  categories["gaps"] = memory.arena_bytes - memory.peak_live_bytes;
  return categories;
}

/// The fewest micro-steps that have a middle one at every stage: more of them repeat it.
constexpr std::int64_t folded_micro_steps = 3;

/// The configuration as far as it takes memory: it keeps the states and temporaries of the
/// optimizer, not the numbers that it updates them by.
TrainingConfig memory_key(const TrainingConfig& config) {
  TrainingConfig result = config;
  result.accumulation_steps = std::min(config.accumulation_steps, folded_micro_steps);
  OptimizerConfig& optimizer = result.optimizer;
  for (double* const number :
       {&optimizer.learning_rate, &optimizer.beta1, &optimizer.beta2, &optimizer.epsilon,
        &optimizer.dampening, &optimizer.learning_rate_decay, &optimizer.initial_accumulator})
    *number = 0;
  optimizer.nesterov = false;
  optimizer.momentum = config.optimizer.momentum != 0 ? 1 : 0;
  optimizer.weight_decay = config.optimizer.weight_decay != 0 ? 1 : 0;
  return result;
}

/// The largest first.
std::string parts_text(const Bytes& parts) {
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [name, bytes] : parts)
    if (bytes > 0) sorted.emplace_back(bytes, name);
  std::ranges::sort(sorted, std::ranges::greater());
  std::string text;
  for (const auto& [bytes, name] : sorted)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, format_bytes(bytes));
  return text;
}

}  // namespace

Prediction MemoryPredictor::predict(const Experiment& experiment) {
  const int group_size = experiment.shape.size();
  const auto [found, is_new] = known_[group_size].try_emplace(memory_key(experiment.config));
  auto& [config, prediction] = *found;
  if (!is_new) return prediction;
  try {
    fill(config, group_size, prediction);
  } catch (const OverflowError&) {
    known_[group_size].erase(found);
    throw;
  }
  return prediction;
}

void MemoryPredictor::fill(const TrainingConfig& config, int group_size, Prediction& prediction) {
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
}

void decide_feasibility(const JobSpec& job, const PlannerOptions& options,
                        MemoryPredictor& predictor, PlannedExperiment& planned) {
  if (!is_planned(job)) return;  // nobody here knows what it does
  const Forecasts& forecasts = options.forecasts;
  const auto infeasible = [&](const std::string& reason) {
    planned.status = PlanStatus::infeasible;
    planned.reason += (planned.reason.empty() ? "" : "; ") + reason;
  };
  const Experiment& experiment = planned.experiment;
  const TrainingConfig& config = experiment.config;
  const int group_size = experiment.shape.size();
  std::string violation = partition_violation(config, group_size);
  if (violation.empty()) violation = model_violation(job.model, config, group_size);
  if (!violation.empty()) {
    if (forecasts.judges_here) infeasible(violation);
    return;
  }
  try {
    planned.predicted = predictor.predict(experiment);
  } catch (const OverflowError& error) {
    infeasible(fmt::format("needs more than any machine has ({})", error.what()));
    return;
  }
  Prediction& predicted = planned.predicted;
  if (predicted.target_memory_bytes > 0) {
    predicted.target_memory_bytes =
        std::max<std::int64_t>(1, predicted.target_memory_bytes + options.target_offset_bytes);
  }
  if (!forecasts.judges_here && !forecasts.judges_target) return;
  const auto check = [&](std::int64_t needed, std::int64_t available, std::string_view where,
                         const Bytes& parts) {
    if (needed <= available) return;
    infeasible(fmt::format("needs {} of {} {}{}", format_bytes(needed), format_bytes(available),
                           where, parts.empty() ? "" : fmt::format(" ({})", parts_text(parts))));
  };
  const auto check_disk = [&](std::int64_t of_rank, const char* where) {
    if (of_rank == 0 || !options.free_disk_bytes) return;
    const std::string& folder = config.disk.folder;
    check(of_rank * experiment.shape.num_gpus, options.free_disk_bytes(folder),
          fmt::format("on the disk of {} for the ranks of a host{}", folder, where), {});
  };
  Bytes on_device = predicted.categories;
  for (const auto& [name, bytes] : predicted.host_categories) on_device[name] -= bytes;
  if (forecasts.judges_here) {
    check(predicted.peak_memory_bytes - predicted.host_memory_bytes, options.device_memory_bytes,
          "on the device", on_device);
    check(predicted.host_memory_bytes, options.host_memory_bytes, "on the host",
          predicted.host_categories);
    check_disk(predicted.disk_bytes, "");
  }
  const std::int64_t for_target = options.device_memory_bytes + options.context_bytes;
  const bool is_too_large = predicted.target_memory_bytes > for_target;
  if (!is_too_large && !is_optimizer_offloaded(config) && !are_parameters_offloaded(config)) return;
  const auto target = target_memory(job.model, config, group_size, job.target);
  check(predicted.target_memory_bytes, for_target, "in the training that it is for", target.parts);
  check(target.host_bytes, options.host_memory_bytes, "on the host in the training that it is for",
        {});
  check_disk(target.disk_bytes, " in the training that it is for");
}

}  // namespace dstune
