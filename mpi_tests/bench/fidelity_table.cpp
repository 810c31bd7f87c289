#include "fidelity_table.hpp"

#include <algorithm>
#include <cstdint>

#include "dstune/base/error.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "fixed_workspaces.hpp"

namespace dstune::bench {

FidelityTable read_fidelity_table(const std::string& space_path, const std::string& table_path) {
  const json::Document table = json::Document::read(table_path);
  const int ranks = table.root().at("ranks").get<int>();
  const JobSpec job = read_job(space_path, {}, std::nullopt, ranks);
  const FixedWorkspaces workspaces;
  StepPredictor predictor(job.model, std::nullopt, workspaces);
  PlannerOptions options;
  options.device_memory_bytes = INT64_MAX;
  options.host_memory_bytes = INT64_MAX;
  const PlannedSpace space = plan_space(job, SearchSpace(job), workspaces, options);
  FidelityTable found;
  found.tuning = job.tuning;
  found.is_on_gpus = table.root().contains("device");
  for (const json::Value& row : table.root().at("experiments")) {
    const auto name = row.at("name").get<std::string>();
    const auto member = std::ranges::find_if(space.members, [&](const PlannedMember& each) {
      return each.planned.experiment.name == name;
    });
    if (member == space.members.end()) throw Error(table_path + " is of another space");
    const Experiment& experiment = member->planned.experiment;
    const auto batch = static_cast<double>(global_batch(experiment.config, ranks));
    if (space.baseline && &*member == &space.members[*space.baseline])
      found.baseline = found.rows.size();
    const json::Value& predicted = row.at("predicted");
    found.rows.push_back({.member = *member,
                          .batch = batch,
                          .deepspeed = row.at("deepspeed").get<std::vector<double>>(),
                          .measured_s = batch / row.at("measured").get<double>(),
                          .predicted_s = predicted.is_null() ? 0 : batch / predicted.get<double>(),
                          .overheads = predictor.overheads(experiment)});
  }
  return found;
}

TargetConstants constants_in(const std::string& profile_path) {
  const DeviceProfile profile = device_profile_from_json(json::Document::read(profile_path).node());
  if (!profile.target)
    throw Error(profile_path +
                " has no \"target\": write it by a job with dstune.target.measure, or with verify");
  return *profile.target;
}

}  // namespace dstune::bench
