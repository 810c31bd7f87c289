#include "traffic.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"

namespace dstune::test {
namespace {

std::int64_t& elements_of(Traffic& traffic, WorkKind kind) {
  switch (kind) {
    case WorkKind::all_reduce:
      return traffic.all_reduce;
    case WorkKind::reduce:
      return traffic.reduce;
    case WorkKind::reduce_scatter:
      return traffic.reduce_scatter;
    case WorkKind::all_gather:
      return traffic.all_gather;
    case WorkKind::all_to_all:
      return traffic.all_to_all;
    default:
      throw LogicError("a collective of no kind that is counted");
  }
}

}  // namespace

Traffic traffic_of(const std::vector<Step>& steps, int group_size) {
  Traffic traffic;
  for (const Step& step : steps) {
    const auto collective = collective_of(step.operation, group_size);
    if (!collective) continue;
    elements_of(traffic, *traits_of(step.operation).work) += collective->elements;
    if (collective->elements > 0) ++traffic.calls;
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

std::int64_t padded_elements(const ParameterTable& table, int group_size) {
  std::int64_t sum = 0;
  for (int unit = 0; unit < table.num_units(); ++unit)
    sum += padded_elements(table, unit, group_size);
  return sum;
}

}  // namespace dstune::test
