#include "memory_predictor.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// So many predictions take 25 MB.
constexpr std::size_t max_known = 100'000;

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

/// "activations are the largest part (40.2 of 97.1 GiB)"
std::string largest_part_text(const Bytes& parts) {
  std::int64_t total = 0;
  const auto* largest = &*parts.begin();
  for (const auto& part : parts) {
    total += part.second;
    if (part.second > largest->second) largest = &part;
  }
  const std::string& name = largest->first;
  return fmt::format("{} {} the largest part ({} of {})", name, name.ends_with('s') ? "are" : "is",
                     format_bytes(largest->second), format_bytes(total));
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
  const TrainingConfig config = memory_key(experiment.config);
  const Digest key = digest128(bytes_of(config) + std::to_string(group_size));
  if (const auto found = known_.find(key); found != known_.end())
    return predictions_.prediction(found->second);
  Prediction prediction;
  fill(config, group_size, prediction);
  if (known_.size() == max_known) {
    known_.clear();
    predictions_ = {};
  }
  known_.emplace(key, predictions_.add(prediction));
  return prediction;
}

void MemoryPredictor::fill(const TrainingConfig& config, int group_size, Prediction& prediction) {
  fill_target(config, group_size, prediction);
  if (!plans_here_) return;
  // Partitions are padded to the same size, so that ranks can not differ: one plan is every rank's.
  const StepPlan& plan = planner_.figures(config, group_size);
  prediction.host_memory_bytes = plan.host_memory.arena_bytes;
  prediction.peak_memory_bytes = plan.memory.arena_bytes + prediction.host_memory_bytes;
  prediction.host_categories = categories_of(plan.host_memory);
  prediction.disk_bytes = plan.disk.arena_bytes;
  prediction.categories = categories_of(plan.memory);
  for (const auto& [name, bytes] : prediction.host_categories) prediction.categories[name] += bytes;
  prediction.ranks = {{0, group_size - 1, prediction.peak_memory_bytes, prediction.categories}};
}

void MemoryPredictor::fill_target(const TrainingConfig& config, int group_size,
                                  Prediction& prediction) {
  const TargetMemory target = target_planner_.memory(config, group_size);
  prediction.target_memory_bytes = target.total_bytes;
  prediction.target_memory_shown_bytes = target.shown_bytes;
  prediction.target_host_memory_bytes = target.host_bytes;
  prediction.target_loading_bytes = target.loading_bytes;
  prediction.target_saving_bytes = target.saving_bytes;
  prediction.target_disk_bytes = target.disk_bytes;
  prediction.target_categories = target.parts;
}

namespace {

/// The bounds of a verdict: what is needed, in percent of what there is.
struct Bounds {
  double fits_below, fails_above;
};

MemoryVerdict verdict_on(std::int64_t needed, std::int64_t available, const Bounds& bounds) {
  const double percent = 100 * static_cast<double>(needed) / static_cast<double>(available);
  if (percent > bounds.fails_above) return MemoryVerdict::does_not_fit;
  return percent > bounds.fits_below ? MemoryVerdict::edge : MemoryVerdict::fits;
}

/// A memory that is smaller than what is needed of it.
struct Shortage {
  std::string needed;  ///< "41.1 GiB here (parameters 1.00 GiB)"
  std::string memory;  ///< "the device has 18.8 GiB"
};

Shortage shortage_of(std::int64_t needed, std::string_view whose, std::int64_t available,
                     std::string_view holder, const Bytes& parts) {
  return {fmt::format("{} {}{}", format_bytes(needed), whose,
                      parts.empty() ? "" : fmt::format(" ({})", parts_text(parts))),
          fmt::format("{} has {}", holder, format_bytes(available))};
}

/// "needs 41.1 GiB here and 49.0 GiB in your training, but the device has 18.8 GiB": a text for
/// each memory that is too small.
std::vector<std::string> shortage_texts(const std::vector<Shortage>& shortages) {
  std::vector<std::pair<std::string, std::string>> needed_of;  // by memory, in the order given
  for (const Shortage& one : shortages) {
    const auto known =
        std::ranges::find(needed_of, one.memory, &std::pair<std::string, std::string>::first);
    if (known != needed_of.end())
      known->second += " and " + one.needed;
    else
      needed_of.emplace_back(one.memory, one.needed);
  }
  std::vector<std::string> texts;
  for (const auto& [memory, needed] : needed_of)
    texts.push_back(fmt::format("needs {}, but {}", needed, memory));
  return texts;
}

constexpr std::string_view here = "here";
constexpr std::string_view in_training = "in your training";
constexpr std::string_view the_device = "the device";
constexpr std::string_view the_host = "the host";

/// Decides whether the target fits. Returns what is too little for it.
std::vector<Shortage> judge_target(const JobSpec& job, const PlannerOptions& options,
                                   const GroupShape& shape, Prediction& predicted) {
  if (predicted.target_memory_bytes == 0) return {};
  const bool on_gpu = job.target.on_gpu;
  std::vector<Shortage> reasons;
  const auto judge = [&](std::int64_t needed, std::int64_t available, const Bounds& bounds,
                         const Shortage& reason, const std::string& because) {
    const MemoryVerdict verdict = verdict_on(needed, available, bounds);
    predicted.verdict = std::max(predicted.verdict, verdict);
    if (verdict != MemoryVerdict::does_not_fit) return;
    if (reasons.empty()) predicted.because = because;
    reasons.push_back(reason);
  };
  const std::int64_t on_device = predicted.target_memory_bytes;
  const std::int64_t of_device = options.device_memory_bytes + options.context_bytes;
  judge(on_device, of_device,
        {100.0 - edge_percent_below, 100.0 + (on_gpu ? edge_percent_above : 0)},
        shortage_of(on_device, in_training, of_device, the_device, predicted.target_categories),
        largest_part_text(predicted.target_categories));
  // A full card shows no more than it has.
  if (predicted.verdict != MemoryVerdict::does_not_fit)
    predicted.target_memory_shown_bytes =
        std::min(predicted.target_memory_shown_bytes, std::max(on_device, of_device));
  const std::optional<std::int64_t> of_rank = options.host_memory_for(shape);
  if (!of_rank || predicted.target_host_memory_bytes == 0) return reasons;
  const std::int64_t on_host = predicted.target_host_memory_bytes;
  const Bounds of_host = on_gpu ? Bounds{1e4 / (100.0 + host_percent_of_trainings),
                                         1e4 / (100.0 + host_percent_of_processes)}
                                : Bounds{100.0 - edge_percent_below, 100};
  judge(on_host, *of_rank, of_host, shortage_of(on_host, in_training, *of_rank, the_host, {}),
        fmt::format("offloaded states take {} of {} of a rank's host", format_bytes(on_host),
                    format_bytes(*of_rank)));
  return reasons;
}

}  // namespace

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
  const std::vector<Shortage> in_target = judge_target(job, options, experiment.shape, predicted);
  if (!forecasts.judges_here && !forecasts.judges_target) return;
  std::vector<Shortage> shortages;
  const auto check = [&](std::int64_t needed, std::string_view whose, std::int64_t available,
                         std::string_view holder, const Bytes& parts) {
    if (needed > available)
      shortages.push_back(shortage_of(needed, whose, available, holder, parts));
  };
  const auto check_disk = [&](std::int64_t of_rank, std::string_view whose) {
    if (of_rank == 0 || !options.free_disk_bytes) return;
    const std::string& folder = config.disk.folder;
    check(of_rank * experiment.shape.num_gpus, fmt::format("for the ranks of a host {}", whose),
          options.free_disk_bytes(folder), fmt::format("the disk of {}", folder), {});
  };
  // The user's training is our own step.
  const bool is_own = job.target.framework == TargetFramework::self;
  Bytes on_device = predicted.categories;
  for (const auto& [name, bytes] : predicted.host_categories) on_device[name] -= bytes;
  if (forecasts.judges_here && forecasts.judges_memory_here) {
    check(predicted.peak_memory_bytes - predicted.host_memory_bytes, here,
          options.device_memory_bytes, the_device, on_device);
    if (options.host_memory_bytes)
      check(predicted.host_memory_bytes, here, *options.host_memory_bytes, the_host,
            predicted.host_categories);
    check_disk(predicted.disk_bytes, here);
    if (is_own)
      predicted.verdict = shortages.empty() ? MemoryVerdict::fits : MemoryVerdict::does_not_fit;
  }
  std::ranges::copy(in_target, std::back_inserter(shortages));
  check_disk(predicted.target_disk_bytes, in_training);
  for (const std::string& text : shortage_texts(shortages)) infeasible(text);
}

}  // namespace dstune
