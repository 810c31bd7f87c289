#include "dstune/predict/overheads.hpp"

#include <algorithm>

#include "dstune/model/parameter_table.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {
namespace {

double& of(Overheads& counts, Overhead overhead) {
  return counts[static_cast<std::size_t>(overhead)];
}

double sent_bytes(const StepPlan& plan, const Work& work) {
  const double ranks = work.width > 0 ? static_cast<double>(work.width) : plan.group_size;
  const double passes = work.kind == WorkKind::all_reduce ? 2 : 1;
  return passes * (ranks - 1) / ranks * static_cast<double>(work.size);
}

double sent_bytes(const StepPlan& plan, const Segment& segment) {
  double bytes = 0;
  for (const Step& step : segment.steps) {
    const auto work = work_of(plan, step.operation);
    if (work && is_collective(work->kind) && work->kind != WorkKind::exchange)
      bytes += sent_bytes(plan, *work);
  }
  return bytes;
}

}  // namespace

OverheadCounter::OverheadCounter(const ModelSpec& model, const WorkspaceSizes& workspaces)
    : planner_(model, workspaces) {
  const ParameterTable table(model);
  for (const Parameter& parameter : table.all()) {
    // Our merged ones are joined by a plus; each module has a weight.
    const auto parts = 1 + std::count(parameter.name.begin(), parameter.name.end(), '+');
    parameters_ += static_cast<double>(parts);
    if (parameter.name.ends_with("weight")) modules_ += static_cast<double>(parts);
  }
}

Overheads OverheadCounter::count(const TrainingConfig& config, int group_size) {
  const int stage = config.zero_stage;
  const auto micro_steps = static_cast<double>(config.accumulation_steps);
  Overheads counts{};
  of(counts, Overhead::optimizer_step) = 1;
  of(counts, Overhead::module_call) = modules_ * micro_steps;
  if (stage > 0) of(counts, Overhead::gradient_hook) = parameters_ * (stage == 1 ? 1 : micro_steps);
  if (stage == 3) of(counts, Overhead::gathering_hook) = modules_ * micro_steps;
  const StepPlan& plan = planner_.plan(config, group_size);
  for (const Segment& segment : plan.cycle) {
    of(counts, Overhead::communicated_byte) +=
        static_cast<double>(segment.repeat) * sent_bytes(plan, segment);
  }
  return counts;
}

}  // namespace dstune
