#include "preparation.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/space/search_space.hpp"
#include "dstune/train/executor.hpp"
#include "plugin_start.hpp"

namespace dstune {
namespace {

using json::Value;

/// Ranks of each node that train: rank 0 does not where it only coordinates.
std::vector<std::vector<int>> training_ranks(const Topology& topology, bool dedicated) {
  std::vector<std::vector<int>> ranks = topology.ranks_of_node;
  if (dedicated) std::erase(ranks[static_cast<std::size_t>(topology.node_of_rank[0])], 0);
  return ranks;
}

Value identity(const JobSpec& job, const Experiment& experiment, const Value& fingerprint) {
  Value workload = {{"kind", static_cast<int>(job.workload.kind)},
                    {"step_time_s", job.workload.step_time_s},
                    {"time_scale", job.workload.time_scale},
                    {"table", job.workload.table}};
  if (job.workload.kind == WorkloadKind::plugin) {
    workload["options"] = job.workload.options;
    workload["library_hash"] = job.workload.library_hash;
  }
  Value config = experiment.ds_config;
  config.erase("autotuning");
  return {
      {"config", config},
      {"num_gpus", experiment.shape.num_gpus},
      {"num_nodes", experiment.shape.num_nodes},
      {"recompute", to_text(experiment.config.recompute)},
      {"model", to_json(job.model)},
      {"sequence_length", job.sequence_length},
      {"target", {static_cast<int>(job.target.framework), static_cast<int>(job.target.attention)}},
      {"workload", workload},
      {"machine", fingerprint},
      {"measuring_version", measuring_version}};
}

/// The most experiments that a job of a large space runs.
std::uint64_t job_cap(const JobSpec& job, const PlannerOptions& planner) {
  const auto& trials = job.tuning.num_trials;
  return trials ? std::min<std::uint64_t>(*trials, planner.listed) : planner.listed;
}

}  // namespace

Preparation prepare_plan(const JobOptions& options, const Topology& topology,
                         const std::vector<RankDevice>& devices) {
  Preparation ready;
  Machine machine;
  int most_ranks_a_node = 0;
  for (const auto& ranks : training_ranks(topology, options.dedicated_coordinator)) {
    machine.ranks_of_node.push_back(static_cast<int>(ranks.size()));
    most_ranks_a_node = std::max(most_ranks_a_node, static_cast<int>(ranks.size()));
  }
  ready.job = read_job(options.space_path, options.overrides,
                       options.dry_run ? std::nullopt : std::optional(machine), most_ranks_a_node);
  for (const std::string& warning : ready.job.warnings) log::warning(warning);
  if (ready.job.workload.kind == WorkloadKind::plugin) {
    ready.job.workload.library_hash = plugin_hash(ready.job.workload);
  }

  std::int64_t least_memory_bytes = std::numeric_limits<std::int64_t>::max();
  for (const RankDevice& device : devices) {
    least_memory_bytes = std::min(least_memory_bytes, device.memory_bytes);
  }
  ready.device_memory_bytes = ready.job.device_memory_bytes.value_or(least_memory_bytes);

  const CpuWorkspaces workspaces(kernels::cpu_table());
  PlannerOptions planner;
  planner.device_memory_bytes = ready.device_memory_bytes;
  if (!options.dry_run) {
    planner.listed = most_listed_members;
    planner.lists_pruned = false;
  }
  if (ready.job.experiment_files.empty()) {
    const SearchSpace space(ready.job);
    if (!options.dry_run && space.size() > planner.most_members) {
      log::warning(fmt::format(
          "the space has {} members: all are checked before the first runs, and at most {} of them "
          "are tried; --dry-run counts them",
          space.size(), job_cap(ready.job, planner)));
    }
    ready.space = plan_space(ready.job, space, workspaces, planner);
  } else {
    ready.space = plan_experiments(ready.job, workspaces, planner);
  }
  for (const std::string& warning : ready.space.warnings) log::warning(warning);
  ready.tuner = make_tuner(ready.job.tuning.tuner_type, ready.space, ready.job.tuning);
  return ready;
}

void open_results(Preparation& ready, const JobOptions& options, const Topology& topology,
                  const std::vector<RankDevice>& devices) {
  ready.results =
      std::make_unique<ResultsFolder>(ready.job.tuning.results_dir, ready.job.tuning.exps_dir);
  if (ready.job.tuning.overwrite) ready.results->delete_previous();
  const JournalContent content = read_journal(ready.results->journal_path());
  ready.history = understand(content, ready.results->journal_path());
  ready.journal = std::make_unique<Journal>(ready.results->journal_path(), content.valid_bytes);

  const Value fingerprint = machine_fingerprint(topology, devices);
  Value decided = Value::array();
  for (const PlannedMember& member : ready.space.members) {
    ready.keys.push_back(record_key(identity(ready.job, member.planned.experiment, fingerprint)));
    decided.push_back({ready.keys.back(), to_text(member.planned.status)});
  }

  // What was planned is written once, not again by every job that resumes it.
  const std::string plan_key = record_key(decided);
  bool is_known_plan = false;
  for (const JournalContent::Event& event : content.events) {
    is_known_plan = is_known_plan || event.value.value("plan_key", "") == plan_key;
  }
  Value environment = environment_info(topology, devices, options.version, options.command_line);
  environment["seeds"] = {{"tuner", ready.job.tuning.seed}, {"reference_step", reference_seed}};
  environment["device_memory_bytes"] = ready.device_memory_bytes;
  environment["input_hashes"] = {{"space", record_key(ready.job.document->root())},
                                 {"model", record_key(to_json(ready.job.model))}};
  ready.journal->add(event::job_started({{"version", options.version},
                                         {"time", format_time(std::chrono::system_clock::now())},
                                         {"command", options.command_line},
                                         {"measuring_version", measuring_version},
                                         {"machine", fingerprint},
                                         {"plan_key", plan_key}}));
  if (!is_known_plan) {
    for (const PlannedMember& member : ready.space.members) {
      if (member.planned.status != PlanStatus::planned) {
        ready.journal->add(event::planned(member.planned));
      }
    }
  }
  ready.journal->commit();
  ready.results->write_environment(environment);
}

JobInput job_input(const Preparation& ready, const Topology& topology) {
  JobInput input;
  input.run = true;
  input.model = ready.job.model;
  input.workload = ready.job.workload;
  input.measure = ready.job.tuning.measure;
  input.device_memory_bytes = ready.device_memory_bytes;
  std::set<GroupShape> shapes;
  for (const PlannedMember& member : ready.space.members) {
    if (member.planned.status == PlanStatus::planned) {
      shapes.insert(member.planned.experiment.shape);
    }
  }
  for (const GroupShape& shape : shapes) {
    for (auto& group : aligned_groups(topology, shape.num_gpus, shape.num_nodes)) {
      input.groups.push_back(std::move(group));
    }
  }
  return input;
}

}  // namespace dstune
