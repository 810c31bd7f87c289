#include "own_step/warm_work.hpp"

#include <algorithm>
#include <cstdint>

#include "dstune/base/hash.hpp"

namespace dstune {
namespace {

/// Calls `visit` with the work of each operation of a step until it returns false.
template <class Visitor>
bool all_work(const StepPlan& plan, const Visitor& visit) {
  const auto holds = [&](const Segment& segment) {
    return std::ranges::all_of(segment.steps, [&](const Step& step) {
      const auto work = work_of(plan, step.operation);
      return !work || visit(*work);
    });
  };
  return std::ranges::all_of(plan.tracing, holds) && std::ranges::all_of(plan.cycle, holds);
}

}  // namespace

std::size_t WarmWork::Hash::operator()(const Work& work) const {
  std::size_t hash = 0;
  for (const auto number :
       {static_cast<std::int64_t>(work.kind), static_cast<std::int64_t>(work.type),
        static_cast<std::int64_t>(work.out_type), static_cast<std::int64_t>(work.flags), work.width,
        work.depth, work.size})
    mix_hash(hash, number);
  return hash;
}

bool WarmWork::holds(const StepPlan& plan) const {
  return all_work(plan, [&](const Work& work) { return work_.contains(work); });
}

void WarmWork::add(const StepPlan& plan) {
  all_work(plan, [&](const Work& work) {
    work_.insert(work);
    return true;
  });
}

}  // namespace dstune
