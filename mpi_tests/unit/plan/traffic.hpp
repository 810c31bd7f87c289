#pragma once
/// Communication of a plan, added up.

#include <vector>

#include "dstune/plan/step_plan.hpp"

namespace dstune::test {

/// Elements that each collective is handed, and the number of calls.
struct Traffic {
  std::int64_t all_reduce = 0, reduce = 0, reduce_scatter = 0, all_gather = 0, all_to_all = 0;
  std::int64_t calls = 0;
  bool operator==(const Traffic&) const = default;
};

Traffic traffic_of(const std::vector<Step>& steps, int group_size);
/// Traffic of one optimizer step.
Traffic traffic_of(const StepPlan& plan);

inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
/// Elements of all ranks' shards of a unit, and of all units.
std::int64_t padded_elements(const ParameterTable& table, int unit, int group_size);
std::int64_t padded_elements(const ParameterTable& table, int group_size);

}  // namespace dstune::test
