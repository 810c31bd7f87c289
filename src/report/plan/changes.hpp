#pragma once
/// Changes of a configuration that make it fit, and the number of GPUs that it needs. Members of
/// the plan are compared where they are such a change; others are judged by DryRun::what_if. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dstune/report/dry_run.hpp"

namespace dstune {

enum class ChangeKind {
  accumulation,  ///< a smaller micro-batch and as many more micro-steps
  stage,
  recompute,
  offload_optimizer,  ///< by its share; back to the device, too
  offload_param,
  several,
  gpus,
};
[[nodiscard]] const EnumTexts& texts_of(ChangeKind);

struct PlanChange {
  ChangeKind kind = ChangeKind::several;
  std::string text;             ///< "stage 3", "recompute block and stage 3"
  json::Value keys{};           ///< of space.json, by pointer
  PlannedExperiment planned{};  ///< the changed one; without a name where it is no member
  double usual_slowdown = 1;    ///< the time of a step takes so many times as long
};

struct PlanChanges {
  std::optional<std::size_t> subject{};  ///< the member that changes are to make fit
  std::vector<PlanChange> changes{};     ///< those with which it fits, the cheapest first
  bool is_by_speed = false;              ///< by predicted speed; else by the usual slowdown
  /// The fewest ranks with which a member, or a member but for its ranks, fits.
  std::optional<int> smallest_num_gpus{};
  std::string smallest_with{};        ///< the member's name
  std::vector<int> tried_num_gpus{};  ///< rising
  /// The largest micro-batch beyond the space's with which the largest that fits still does.
  std::optional<std::int64_t> larger_micro_batch{};
};

/// The members that changes are tried on.
struct ChangeTask {
  std::optional<std::size_t> subject{};
  std::optional<std::size_t> largest{};  ///< fits, and no larger size is a member
  std::optional<std::size_t> fewest{};   ///< fits, on the fewest ranks
  std::optional<std::size_t> least{};    ///< the member with the least memory
};
[[nodiscard]] PlanChanges try_changes(const DryRun& plan, const ChangeTask& task);

}  // namespace dstune
