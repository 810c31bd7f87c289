#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "dstune/report/results.hpp"
#include "record_json.hpp"

namespace dstune {

namespace {

/// Of a pruned member nothing is predicted; the keys are there all the same.
json::Value predicted_json(const PlannedExperiment& planned) {
  if (planned.status != PlanStatus::pruned) return to_json(planned.predicted);
  return {{"throughput", nullptr},
          {"peak_memory_bytes", nullptr},
          {"host_memory_bytes", nullptr},
          {"target_memory_bytes", nullptr}};
}

/// A member in one line of the text.
std::string line(const PlannedExperiment& planned, std::size_t name_width) {
  const Experiment& experiment = planned.experiment;
  std::string out = fmt::format("{:<10}  {:<{}}  group {:<3}", to_text(planned.status),
                                experiment.name, name_width, experiment.shape.size());
  if (planned.status != PlanStatus::pruned) {
    const Prediction& predicted = planned.predicted;
    out += fmt::format("  memory {}", format_bytes(predicted.peak_memory_bytes));
    if (predicted.target_memory_bytes > 0)
      out += fmt::format(", in the target {}", format_bytes(predicted.target_memory_bytes));
    if (predicted.throughput)
      out += fmt::format(", {} samples/s", format_number(*predicted.throughput));
  }
  if (!planned.reason.empty()) out += "  " + planned.reason;
  return out + "\n";
}

}  // namespace

std::string dry_run_text(const DryRun& plan) {
  std::size_t name_width = 0;
  for (const PlannedExperiment& planned : plan.experiments)
    name_width = std::max(name_width, planned.experiment.name.size());
  std::string out;
  for (const PlannedExperiment& planned : plan.experiments) out += line(planned, name_width);
  if (plan.total > plan.experiments.size())
    out += fmt::format("... and {} further members\n", plan.total - plan.experiments.size());
  return out + fmt::format("\n{} members: {} planned, {} infeasible, {} pruned.\n", plan.total,
                           plan.planned, plan.infeasible, plan.pruned);
}

json::Value dry_run_json(const DryRun& plan) {
  json::Value experiments = json::Value::array();
  for (const PlannedExperiment& planned : plan.experiments) {
    experiments.push_back({{"name", planned.experiment.name},
                           {"num_gpus", planned.experiment.shape.size()},
                           {"status", to_text(planned.status)},
                           {"reason", planned.reason},
                           {"predicted", predicted_json(planned)},
                           {"ds_config", planned.experiment.ds_config}});
  }
  return {{"experiments", std::move(experiments)},
          {"counts",
           {{"planned", plan.planned}, {"infeasible", plan.infeasible}, {"pruned", plan.pruned}}}};
}

}  // namespace dstune
