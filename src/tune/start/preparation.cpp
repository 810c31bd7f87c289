#include "start/preparation.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/plan/memory.hpp"
#include "dstune/report/dry_run.hpp"
#include "dstune/space/search_space.hpp"
#include "dstune/train/executor.hpp"
#include "profile/prediction.hpp"

namespace dstune {
namespace {

using json::Value;

using RanksOfNode = std::vector<std::vector<int>>;

/// Ranks of each node that train: rank 0 does not where it only coordinates.
RanksOfNode training_ranks(const RanksOfNode& allowed, bool dedicated) {
  RanksOfNode nodes = allowed;
  if (dedicated) {
    for (auto& ranks : nodes) std::erase(ranks, 0);
    std::erase_if(nodes, [](const auto& ranks) { return ranks.empty(); });
  }
  return nodes;
}

/// Decides which ranks train, and returns the machine that groups must fit. A dry run with a
/// hostfile plans for the cluster of the file, which need not be this job's; one without takes
/// groups of any size.
std::optional<Machine> decide_ranks(Preparation& ready, const JobOptions& options,
                                    const Topology& topology) {
  std::optional<Hostfile> file;
  if (options.hostfile) file = read_hostfile(*options.hostfile);
  const bool is_restricted = file || options.host_filter;
  const bool is_other_cluster = options.dry_run && file;
  const JobHosts hosts =
      is_other_cluster ? job_of(*file) : JobHosts{topology.hosts, topology.ranks_of_node};
  const RanksOfNode allowed = select_ranks(hosts, file, options.host_filter);
  const RanksOfNode training = training_ranks(allowed, options.dedicated_coordinator);
  if (is_restricted && training.empty()) {
    throw UsageError(
        "--coordinator dedicated leaves no rank to train: name more than rank 0 in --hostfile or "
        "--include, or less in --exclude");
  }
  const bool is_planned_elsewhere = is_other_cluster || training.empty();
  ready.allowed_ranks = is_planned_elsewhere ? topology.ranks_of_node : allowed;
  ready.training_ranks = is_planned_elsewhere ? topology.ranks_of_node : training;
  if (options.dry_run && !file) return std::nullopt;
  if (is_restricted && !options.dry_run) {
    const int trained = num_ranks(training);
    log::info(fmt::format("{} of {} ranks train, on {} of {} host(s); {} stay idle", trained,
                          topology.world_size, training.size(), topology.num_nodes(),
                          topology.world_size - trained));
  }
  Machine machine{{}, is_restricted};
  for (const auto& ranks : training)
    machine.ranks_of_node.push_back(static_cast<int>(ranks.size()));
  return machine;
}

/// The least memory of a device that trains, and of its host's part.
std::int64_t min_bytes(std::int64_t RankDevice::*bytes, const RanksOfNode& nodes,
                       const std::vector<RankDevice>& devices) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const int rank : nodes | std::views::join)
    least = std::min(least, devices[static_cast<std::size_t>(rank)].*bytes);
  return least;
}

/// On a CPU the device's memory is the host's, too: what it leaves. A GPU has its own.
std::int64_t host_memory_beside(std::int64_t device_memory_bytes, const RanksOfNode& nodes,
                                const std::vector<RankDevice>& devices) {
  const std::int64_t of_host = min_bytes(&RankDevice::host_bytes, nodes, devices);
  if (devices.front().backend != "cpu") return of_host;
  return std::max<std::int64_t>(0, of_host - device_memory_bytes);
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
  Value target = {static_cast<int>(job.target.framework), static_cast<int>(job.target.attention)};
  // Journals from before there was a choice go on counting.
  if (job.target.checkpointing == TargetCheckpointing::deepspeed) target.push_back("deepspeed");
  Value all = {{"config", config},
               {"num_gpus", experiment.shape.num_gpus},
               {"num_nodes", experiment.shape.num_nodes},
               {"recompute", to_text(experiment.config.recompute)},
               {"model", to_json(job.model)},
               {"sequence_length", job.sequence_length},
               {"target", target},
               {"workload", workload},
               {"machine", fingerprint},
               {"measuring_version", measuring_version}};
  // It is the only thing that the configuration does not say.
  if (job.precision && has_automatic_precision(config)) all["precision"] = to_text(*job.precision);
  return all;
}

/// Where every planned member was predicted: all of them on the job's ranks, or on as many as the
/// largest group needs.
std::optional<double> expected_duration_s(const Preparation& ready, JobPredictor& predictor) {
  double rank_seconds = 0;
  int ranks = num_ranks(ready.training_ranks);
  for (const PlannedExperiment* member : members_to_run(ready.space)) {
    const int group_size = member->experiment.shape.size();
    ranks = std::max(ranks, group_size);
    const auto seconds = predictor.experiment_s(member->experiment);
    if (!seconds) return std::nullopt;
    rank_seconds += group_size * *seconds;
  }
  return rank_seconds / ranks;
}

void predict_times(const Preparation& ready, JobPredictor& predictor, DryRun& plan) {
  std::uint64_t num_predicted = 0;
  for (PlannedExperiment& planned : plan.experiments) {
    if (planned.status != PlanStatus::planned) continue;
    predictor.predict(planned.experiment, planned.predicted);
    ++num_predicted;
  }
  if (num_predicted == plan.planned) plan.expected_s = expected_duration_s(ready, predictor);
}

/// Characters of a line of stdout, 0 where it is none that wraps. mpirun gives its ranks terminals
/// without a size: the user's may be told in COLUMNS.
std::size_t output_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  return columns != nullptr ? std::strtoul(columns, nullptr, 10) : 0;
}

}  // namespace

std::vector<const PlannedExperiment*> members_to_run(const PlannedSpace& space) {
  std::vector<const PlannedExperiment*> members;
  for (const PlannedMember& member : space.members)
    if (member.planned.status == PlanStatus::planned) members.push_back(&member.planned);
  return members;
}

int num_ranks(const std::vector<std::vector<int>>& ranks_of_node) {
  std::size_t total = 0;
  for (const auto& ranks : ranks_of_node) total += ranks.size();
  return static_cast<int>(total);
}

std::vector<int> excluded_ranks(const JobOptions& options, const Topology& topology) {
  if (options.dry_run || !(options.hostfile || options.host_filter)) return {};
  std::optional<Hostfile> file;
  if (options.hostfile) file = read_hostfile(*options.hostfile);
  std::vector<int> ranks(static_cast<std::size_t>(topology.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const auto& allowed :
       select_ranks({topology.hosts, topology.ranks_of_node}, file, options.host_filter))
    for (const int rank : allowed) std::erase(ranks, rank);
  return ranks;
}

Preparation prepare_plan(const JobOptions& options, const Topology& topology,
                         const std::vector<RankDevice>& devices, const kernels::Table& kernels) {
  Preparation ready;
  ready.kernels = &kernels;
  const std::optional<Machine> machine = decide_ranks(ready, options, topology);
  std::size_t max_ranks_per_node = 1;
  for (const auto& ranks : ready.training_ranks) {
    max_ranks_per_node = std::max(max_ranks_per_node, ranks.size());
  }
  ready.job = read_job(options.space_path, options.overrides, machine,
                       static_cast<int>(max_ranks_per_node));
  check_training_command(ready.job);
  // A plan says them itself.
  if (!options.dry_run)
    for (const std::string& assumption : ready.job.assumptions) log::info("assumed: " + assumption);
  for (const std::string& warning : ready.job.warnings) log::warning(warning);
  if (ready.job.workload.kind == WorkloadKind::plugin) {
    ready.job.workload.library_hash = plugin_hash(ready.job.workload);
  }

  ready.device_memory_bytes =
      ready.job.device_memory_bytes
          ? *ready.job.device_memory_bytes
          : min_bytes(&RankDevice::memory_bytes, ready.training_ranks, devices);

  ready.host_memory_bytes = ready.job.host_memory_bytes.value_or(
      host_memory_beside(ready.device_memory_bytes, ready.training_ranks, devices));

  const CpuWorkspaces workspaces(kernels);
  const std::vector<DeepSpeedRun> user_runs = read_user_runs(options.calibration_files, ready.job);
  ready.memory_offset_bytes = memory_offset(user_runs, ready.job);
  PlannerOptions planner;
  planner.target_offset_bytes = ready.memory_offset_bytes;
  // Where the step is not ours, or nobody trains elsewhere, its own times are all there is.
  if (ready.job.workload.kind == WorkloadKind::transformer &&
      ready.job.target.framework != TargetFramework::self)
    ready.target = target_constants(devices.back().backend == "cuda");
  planner.device_memory_bytes = ready.device_memory_bytes;
  planner.host_memory_bytes = ready.host_memory_bytes;
  planner.free_disk_bytes = free_disk_bytes;
  if (!options.dry_run) {
    planner.listed = max_listed_members;
    planner.lists_pruned = false;
  }
  if (ready.job.experiment_files.empty()) {
    const SearchSpace space(ready.job);
    if (!options.dry_run && space.size() > planner.max_members) {
      const auto& trials = ready.job.tuning.num_trials;
      const std::uint64_t max_tried =
          trials ? std::min<std::uint64_t>(*trials, planner.listed) : planner.listed;
      log::warning(fmt::format(
          "the space has {} members: all are checked before the first runs, and at most {} of them "
          "are tried; --dry-run counts them",
          space.size(), max_tried));
    }
    ready.space = plan_space(ready.job, space, workspaces, planner);
  } else {
    ready.space = plan_experiments(ready.job, workspaces, planner);
  }
  for (const std::string& warning : ready.space.warnings) log::warning(warning);
  ready.user_runs = match_user_runs(user_runs, ready.space);
  if (options.import_dir) ready.imports = read_imports(*options.import_dir, ready.job, ready.space);
  return ready;
}

void open_results(Preparation& ready, const JobOptions& options, const Topology& topology,
                  const std::vector<RankDevice>& devices) {
  ready.results =
      std::make_unique<ResultsFolder>(ready.job.tuning.results_dir, ready.job.tuning.exps_dir);
  if (ready.job.tuning.overwrite) ready.results->delete_previous();
  const JournalContent content = read_journal(ready.results->journal_path());
  ready.history = understand(content, ready.results->journal_path());
  ready.results->forget_exit_status();
  ready.journal = std::make_unique<Journal>(ready.results->journal_path(), content.valid_bytes);

  const Value& fingerprint = ready.fingerprint = machine_fingerprint(ready.allowed_ranks, devices);
  Value decided = Value::array();
  for (const PlannedMember& member : ready.space.members) {
    ready.keys.push_back(record_key(identity(ready.job, member.planned.experiment, fingerprint)));
    decided.push_back({ready.keys.back(), to_text(member.planned.status)});
  }

  // What was planned is written once, not again by every job that resumes it.
  const std::string plan_key = record_key(decided);
  const bool is_known_plan = std::ranges::any_of(content.events, [&](const auto& event) {
    return event.value.value("plan_key", "") == plan_key;
  });
  const TuningOptions& tuning = ready.job.tuning;
  Value searched = {plan_key,
                    tuning.tuner_type,
                    to_text(tuning.metric),
                    tuning.seed,
                    tuning.num_trials.value_or(-1),
                    tuning.early_stopping.value_or(-1)};
  // Other constants may have another order.
  if (ready.target) searched.push_back(ready.target->source);
  const std::string search_key = record_key(searched);
  // The others decide the same again from the same results.
  ready.is_search_complete = tuning.tuner_type == "race" &&
                             ready.history.complete_searches.contains(search_key) &&
                             ready.user_runs.empty();
  Value environment = environment_info(topology, devices, options.version, options.command_line);
  environment["machine_fingerprint"] = fingerprint;
  environment["training_ranks"] = ready.training_ranks;
  environment["seeds"] = {{"tuner", ready.job.tuning.seed}, {"reference_step", reference_seed}};
  environment["device_memory_bytes"] = ready.device_memory_bytes;
  environment["host_memory_bytes"] = ready.host_memory_bytes;
  environment["energy"] = ready.energy;
  environment["input_hashes"] = {{"space", record_key(ready.job.document->root())},
                                 {"model", record_key(to_json(ready.job.model))}};
  ready.journal->add(event::job_started({{"version", options.version},
                                         {"time", format_time(std::chrono::system_clock::now())},
                                         {"command", options.command_line},
                                         {"measuring_version", measuring_version},
                                         {"machine", fingerprint},
                                         {"plan_key", plan_key},
                                         {"search_key", search_key}}));
  if (!is_known_plan) {
    for (const PlannedMember& member : ready.space.members)
      if (member.planned.status != PlanStatus::planned)
        ready.journal->add(event::planned(member.planned));
  }
  for (const Import& import : ready.imports) {
    const std::string& key = ready.keys[import.index];
    ready.journal->add(event::verified(key,
                                       ready.space.members[import.index].planned.experiment.name,
                                       import.path, import.measurement));
    ready.history.verified[key] = import.measurement;
  }
  ready.journal->commit();
  ready.results->write_environment(environment);
}

std::optional<MemoryTimeline> memory_timeline_of(const Preparation& ready,
                                                 const Experiment& experiment) {
  const JobSpec& job = ready.job;
  const int group_size = experiment.shape.size();
  if (job.workload.kind != WorkloadKind::transformer ||
      !partition_violation(experiment.config, group_size).empty() ||
      !model_violation(job.model, experiment.config, group_size).empty())
    return std::nullopt;
  return memory_timeline(
      build_step_plan(job.model, experiment.config, group_size, 0, CpuWorkspaces(*ready.kernels)));
}

ExitCode show_plan(const Preparation& ready, const JobOptions& options, Device& device) {
  DryRun plan{.experiments = {},
              .total = ready.space.total,
              .planned = ready.space.planned,
              .infeasible = ready.space.infeasible,
              .pruned = ready.space.pruned,
              .device_memory_bytes = ready.device_memory_bytes,
              .assumptions = ready.job.assumptions};
  for (const PlannedMember& member : ready.space.members)
    plan.experiments.push_back(member.planned);
  plan.timeline = [&](const Experiment& experiment) {
    return memory_timeline_of(ready, experiment);
  };
  if (is_predictable(ready)) {
    if (const auto predictor = measure_alone(ready, device)) {
      if (ready.target) predictor->calibrate(ready.target->time);
      predict_times(ready, *predictor, plan);
    }
  }
  if (options.json_output) {
    std::cout << dry_run_json(plan).dump() << std::endl;
  } else {
    std::cout << dry_run_text(plan, {output_width(), options.verbose}) << std::flush;
  }
  return plan.planned > 0 ? ExitCode::ok : ExitCode::nothing_feasible;
}

JobInput job_input(const Preparation& ready) {
  JobInput input;
  input.run = true;
  input.model = ready.job.model;
  input.workload = ready.job.workload;
  input.measure = ready.job.tuning.measure;
  input.device_memory_bytes = ready.device_memory_bytes;
  input.host_memory_bytes = ready.host_memory_bytes;
  std::set<GroupShape> shapes;
  for (const PlannedExperiment* member : members_to_run(ready.space))
    shapes.insert(member->experiment.shape);
  for (const GroupShape& shape : shapes)
    std::ranges::move(aligned_groups(ready.training_ranks, shape.num_gpus, shape.num_nodes),
                      std::back_inserter(input.groups));
  return input;
}

}  // namespace dstune
