#include "traffic.hpp"

#include <algorithm>

namespace dstune::test {

Traffic traffic_of(const std::vector<Step>& steps, int group_size) {
  Traffic traffic;
  for (const Step& step : steps) {
    const auto all = [&] {
      return traffic.all_reduce + traffic.reduce + traffic.reduce_scatter + traffic.all_gather +
             traffic.all_to_all;
    };
    const std::int64_t before = all();
    if (const auto* o = std::get_if<op::AllReduceAverage>(&step.operation))
      traffic.all_reduce += o->count;
    if (const auto* o = std::get_if<op::AllReduceSum>(&step.operation))
      traffic.all_reduce += o->count;
    if (const auto* o = std::get_if<op::ReduceAverage>(&step.operation)) traffic.reduce += o->count;
    if (const auto* o = std::get_if<op::ReduceScatterAverage>(&step.operation))
      traffic.reduce_scatter += o->count_per_rank * o->among.size(group_size);
    if (const auto* o = std::get_if<op::AllGather>(&step.operation))
      traffic.all_gather += o->count_per_rank * o->among.size(group_size);
    if (const auto* o = std::get_if<op::AllToAll>(&step.operation))
      traffic.all_to_all += o->count_per_rank * o->among.size(group_size);
    if (all() != before) ++traffic.calls;
  }
  return traffic;
}

Traffic traffic_of(const StepPlan& plan) {
  Traffic sum;
  for (const Segment& segment : plan.cycle) {
    const Traffic one = traffic_of(segment.steps, plan.group_size);
    sum.all_reduce += one.all_reduce * segment.repeat;
    sum.reduce += one.reduce * segment.repeat;
    sum.reduce_scatter += one.reduce_scatter * segment.repeat;
    sum.all_gather += one.all_gather * segment.repeat;
    sum.all_to_all += one.all_to_all * segment.repeat;
    sum.calls += one.calls * segment.repeat;
  }
  return sum;
}

std::int64_t padded_elements(const ParameterTable& table, int unit, int group_size) {
  std::int64_t sum = 0;
  const auto [first, last] = table.unit_range(unit);
  for (int index = first; index < last; ++index) {
    const Parameter& parameter = table.all()[static_cast<std::size_t>(index)];
    const std::int64_t parts = 1 + std::count(parameter.name.begin(), parameter.name.end(), '+');
    if (parts == 3) {  // query, key, value
      const int projection = table.find(unit, ParameterRole::projection_weight);
      const std::int64_t query = table.all()[static_cast<std::size_t>(projection)].columns;
      const std::int64_t key = (parameter.rows - query) / 2;
      sum += round_up(query * parameter.columns, group_size) +
             2 * round_up(key * parameter.columns, group_size);
    } else {
      sum += parts * round_up(parameter.elements() / parts, group_size);
    }
  }
  return sum;
}

}  // namespace dstune::test
