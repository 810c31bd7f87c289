#include "start/planned_job.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>
#include <ranges>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/device/disk.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/plan/memory.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/space/search_space.hpp"
#include "dstune/train/executor.hpp"

namespace dstune {
namespace {

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
std::optional<Machine> decide_ranks(PlannedJob& ready, const JobOptions& options,
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
    log::info(fmt::format(log_text::idle_ranks, trained, topology.world_size, training.size(),
                          topology.num_nodes(), topology.world_size - trained));
  }
  Machine machine;
  if (is_restricted)
    machine.limit = Machine::Limit::filter;
  else if (options.dedicated_coordinator)
    machine.limit = Machine::Limit::coordinator;
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
  if (devices.front().is_gpu()) return of_host;
  return std::max<std::int64_t>(0, of_host - device_memory_bytes);
}

/// Refuses names in files of experiments that are names of this program's files. Names that are
/// made here begin with their ZeRO stage. Throws InputError.
void refuse_own_names(const JobSpec& job, const PlannedSpace& space) {
  json::Problems problems;
  const PackedList<PlannedMember>& members = space.members;
  const bool has_any = std::ranges::any_of(members, [](const PlannedMember& member) {
    return is_own_file_name(member.planned.experiment.name);
  });
  for (const std::string& path : job.experiment_files) {
    if (!has_any) break;
    const json::Document document = json::Document::read(path);
    const std::string name = document.root().at("name");
    if (is_own_file_name(name))
      problems.add({path, "/name", document.line("/name"),
                    fmt::format("{} is the name of a file of dstune-mpi: take another", name)});
  }
  problems.check();
}

}  // namespace

void visit_members_to_run(const PlannedSpace& space,
                          const std::function<bool(const PlannedExperiment&)>& visitor) {
  auto member = space.members.begin();
  for (std::size_t index = 0; index < space.members.size(); ++index, ++member)
    if (space.status(index) == PlanStatus::planned && !visitor(member->planned)) return;
}

std::map<GroupShape, int> shapes_to_run(const PlannedSpace& space) {
  std::map<GroupShape, int> counts;
  for (std::size_t index = 0; index < space.members.size(); ++index)
    if (space.status(index) == PlanStatus::planned) ++counts[space.shape(index)];
  return counts;
}

int num_ranks(const std::vector<std::vector<int>>& ranks_of_node) {
  std::size_t total = 0;
  for (const auto& ranks : ranks_of_node) total += ranks.size();
  return static_cast<int>(total);
}

std::vector<int> excluded_ranks(const JobOptions& options, const Topology& topology) {
  if (!options.hostfile && !options.host_filter) return {};
  std::optional<Hostfile> file;
  if (options.hostfile) file = read_hostfile(*options.hostfile);
  std::vector<int> ranks(static_cast<std::size_t>(topology.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  for (const auto& allowed :
       select_ranks({topology.hosts, topology.ranks_of_node}, file, options.host_filter))
    for (const int rank : allowed) std::erase(ranks, rank);
  return ranks;
}

namespace {

/// A plan says them itself.
void say_input(const JobSpec& job, bool is_plan) {
  if (!is_plan) {
    log::info(deepspeed_text(job));
    for (const std::string& line : job.from_command) log::info(line);
    for (const std::string& assumption : job.assumptions)
      log::info(fmt::format(log_text::assumed, assumption));
  }
  for (const std::string& warning : job.warnings) log::warning(warning);
}

/// The kernels of another machine's libraries: what scratch they ask for is not known here.
class NoWorkspaces : public WorkspaceSizes {
 public:
  [[nodiscard]] std::int64_t matmul(const op::Matmul&, DType, DType) const override { return 0; }
  [[nodiscard]] std::int64_t norm(std::int64_t) const override { return 0; }
  [[nodiscard]] std::int64_t attention(std::int64_t, std::int64_t, const ModelSpec&,
                                       DType) const override {
    return 0;
  }
};

/// Returns the profile that --profile-out wrote. Throws InputError.
DeviceProfile read_profile(const std::string& path) {
  const json::Document document = json::Document::read(path);
  return device_profile_from_json(document.node());
}

/// Returns the machine that a profile was measured on. Throws InputError.
ProfiledMachine machine_of_profile(const std::string& path) {
  const DeviceProfile profile = read_profile(path);
  return {profile.cluster.value_or(Cluster()),
          profile.machine.is_object() && profile.machine.value("backend", json::Value()) ==
                                             json::Value(to_text(BackendKind::cpu))};
}

/// Reads the job for the ranks that train.
JobSpec read_input(const JobOptions& options, const std::optional<Machine>& machine,
                   const PlannedJob& ready, bool is_on_gpus) {
  std::size_t max_ranks_per_node = 1;
  for (const auto& ranks : ready.training_ranks)
    max_ranks_per_node = std::max(max_ranks_per_node, ranks.size());
  Overrides overrides = options.overrides;
  overrides.is_plan = options.dry_run;
  overrides.has_hostfile = options.hostfile.has_value();
  overrides.is_on_cpus = options.backend == Backend::cpu;
  overrides.is_here_on_gpus = is_on_gpus;
  overrides.machine_of_profile = machine_of_profile;
  JobSpec job =
      read_job(options.space_path, overrides, machine, static_cast<int>(max_ranks_per_node));
  // A launch of its own needs on CPUs what the engine needs there.
  if (job.training_command && job.engine() != nullptr)
    job.training_command->trains_on_cpu = !is_on_gpus;
  if (job.target.trainable && job.is_model_known && trained_part(job.model, job.target).share == 0)
    throw InputError(
        {{job.document->file(), "/dstune/trainable", job.document->line("/dstune/trainable"),
          "no parameter of the model is named: names are those of Hugging Face's model, "
          "such as \"q_proj\" or \"*norm.weight\""}});
  check_training_command(job);
  complete_instruments(job);
  say_input(job, options.dry_run);
  return job;
}

/// The memory of the machine that is planned for where it is another one. Throws InputError where
/// that of a device is not known.
void decide_memory_elsewhere(PlannedJob& ready) {
  const JobSpec& job = ready.job;
  const Cluster& cluster = *job.cluster;
  if (job.device_memory_bytes) {
    ready.device_memory_bytes = *job.device_memory_bytes;
  } else if (cluster.device && cluster.device->memory_bytes > 0) {
    ready.device_memory_bytes = cluster.device->memory_bytes;
  } else if (const Forecasts forecasts = forecasts_of(job);
             forecasts.judges_here || forecasts.judges_target) {
    const std::string pointer = "/dstune/device_memory";
    throw InputError({{job.document->file(), pointer, job.document->line(pointer),
                       fmt::format("the memory of a {} of the cluster is not known: write "
                                   "\"device_memory\": \"80GiB\" into the section dstune, or name "
                                   "the GPU (--device {}, …)",
                                   job.target.on_gpu ? "GPU" : "rank",
                                   device_names().empty() ? "" : device_names().front())}});
  }
  ready.host_memory_bytes = job.host_memory_bytes;
  if (!ready.host_memory_bytes && cluster.host_memory_bytes) {
    int ranks = 1;  // of the largest group on a node
    for (const GroupShape& shape : job.shapes) ranks = std::max(ranks, shape.num_gpus);
    ready.host_memory_bytes =
        *cluster.host_memory_bytes / std::max(ranks, cluster.gpus_per_node.value_or(1));
  }
}

/// A plan may be made by fewer ranks than its groups have on a node: so many share one's memory.
int ranks_of_one_here(const PlannedJob& ready) {
  std::size_t here = 1;
  for (const auto& ranks : ready.training_ranks) here = std::max(here, ranks.size());
  int planned = 1;
  for (const GroupShape& shape : ready.job.shapes) planned = std::max(planned, shape.num_gpus);
  return std::max(1, planned / static_cast<int>(here));
}

void decide_memory(PlannedJob& ready, std::vector<RankDevice> devices) {
  if (ready.job.cluster) return decide_memory_elsewhere(ready);
  const int sharing = ranks_of_one_here(ready);
  for (RankDevice& device : devices) {
    if (!device.is_gpu()) device.memory_bytes /= sharing;
    device.host_bytes /= sharing;
  }
  ready.device_memory_bytes =
      ready.job.device_memory_bytes
          ? *ready.job.device_memory_bytes
          : min_bytes(&RankDevice::memory_bytes, ready.training_ranks, devices);
  ready.host_memory_bytes = ready.job.host_memory_bytes.value_or(
      host_memory_beside(ready.device_memory_bytes, ready.training_ranks, devices));
}

/// The target's costs count where our own step is ranked for it, and in a plan where only the
/// engine would tell: what that measures is the target's own time.
std::optional<TargetConstants> target_of(const JobSpec& job, bool is_plan) {
  const bool is_forecast = job.has_own_step() || (is_plan && is_planned(job) && job.is_by_engine());
  if (!is_forecast || job.target.framework == TargetFramework::self) return std::nullopt;
  return target_constants(job.target.on_gpu);
}

/// Tells whether the machine that is planned for has the libraries of this program: it is this one,
/// or one of processors that was measured.
bool has_own_libraries(const PlannedJob& ready) {
  return !ready.job.cluster || (ready.profile && !ready.job.target.on_gpu);
}

PlannerOptions planner_options(const PlannedJob& ready, const JobOptions& options,
                               const std::vector<RankDevice>& devices) {
  PlannerOptions planner;
  planner.forecasts = forecasts_of(ready.job);
  planner.target_offset_bytes = ready.memory_offset_bytes;
  planner.device_memory_bytes = ready.device_memory_bytes;
  // A limit that the user states is all that there is.
  if (!ready.job.device_memory_bytes && !ready.job.cluster)
    planner.context_bytes = min_bytes(&RankDevice::context_bytes, ready.training_ranks, devices) +
                            min_bytes(&RankDevice::library_bytes, ready.training_ranks, devices);
  planner.host_memory_bytes = ready.host_memory_bytes;
  // A plan is asked for our own step's memory where that step is the training.
  planner.forecasts.judges_memory_here =
      !ready.job.cluster ||
      (ready.job.target.framework == TargetFramework::self && has_own_libraries(ready));
  if (ready.job.cluster && !ready.job.host_memory_bytes)
    planner.node_host_memory_bytes = ready.job.cluster->host_memory_bytes;
  if (!ready.job.cluster) planner.free_disk_bytes = free_disk_bytes;
  if (ready.time.end_at) planner.used_time = [time = ready.time] { return time.used_share(); };
  if (!options.dry_run) {
    planner.max_members = planner.listed = default_policy().planning.max_members_of_job;
    planner.lists_pruned = false;
  }
  return planner;
}

void warn_of_size(const JobSpec& job, const SearchSpace& space, const PlannerOptions& planner) {
  if (space.size() <= planner.max_members) return;
  const auto& trials = job.tuning.num_trials;
  const std::uint64_t max_tried =
      trials ? std::min<std::uint64_t>(*trials, planner.listed) : planner.listed;
  log::warning(fmt::format(log_text::large_space, space.size(), max_tried));
}

/// One size opens a search of larger ones: DeepSpeed's autotuner does the same. Users that mean one
/// size see it here.
void say_search_of_sizes(JobSpec& job, const SearchSpace& space, bool is_plan) {
  constexpr const char* key = "train_micro_batch_size_per_gpu";
  const auto written = job.ds_config.find(key);
  const std::uint64_t fewer = space.size_without_search();
  if (written == job.ds_config.end() || !written->is_number_integer() || fewer == space.size())
    return;
  const std::string text = fmt::format(log_text::search_of_sizes, key, written->get<std::int64_t>(),
                                       fewer, space.size());
  if (is_plan)
    job.assumptions.insert(job.assumptions.begin(), text);
  else
    log::info(text);
}

PlannedSpace plan_members(PlannedJob& ready, const JobOptions& options) {
  const WorkspaceSizes& workspaces = *ready.workspaces;
  const PlannerOptions& planner = ready.planner;
  if (!ready.job.experiment_files.empty()) {
    PlannedSpace space = plan_experiments(ready.job, workspaces, planner);
    refuse_own_names(ready.job, space);
    return space;
  }
  const SearchSpace members(ready.job);
  say_search_of_sizes(ready.job, members, options.dry_run);
  if (!options.dry_run) warn_of_size(ready.job, members, planner);
  PlannedSpace space = plan_space(ready.job, members, workspaces, planner);
  if (!needs_smaller_sizes(ready.job, space)) return space;
  ready.job.has_smaller_sizes = true;
  return plan_space(ready.job, SearchSpace(ready.job), workspaces, planner);
}

}  // namespace

JobSpec input_of_plan(const JobOptions& options) {
  PlannedJob ready;
  const std::optional<Machine> machine = decide_ranks(ready, options, launched_topology());
  JobSpec job = read_input(options, machine, ready, options.backend != Backend::cpu);
  (void)read_user_runs(options.calibration_files, job);
  if (options.import_dir) (void)read_deepspeed_runs(*options.import_dir, job);
  return job;
}

PlannedJob plan_of_job(const JobOptions& options, const Topology& topology,
                       const std::vector<RankDevice>& devices, const kernels::Table& kernels) {
  PlannedJob ready;
  ready.time = time_budget(options);
  if (options.profile_path) check_output_file(*options.profile_path);
  const std::optional<Machine> machine = decide_ranks(ready, options, topology);
  ready.job = read_input(options, machine, ready, devices.back().is_gpu());
  decide_memory(ready, devices);
  if (ready.job.cluster && ready.job.machine_choice.profile) {
    const bool is_of_option = options.overrides.machine.profile.has_value();
    const std::string& path = *ready.job.machine_choice.profile;
    ready.profile = read_profile(
        is_of_option ? path : (std::filesystem::path(ready.job.folder) / path).string());
  }
  const std::vector<DeepSpeedRun> user_runs = read_user_runs(options.calibration_files, ready.job);
  ready.memory_offset_bytes = memory_offset(user_runs, ready.job);
  ready.target = target_of(ready.job, options.dry_run);
  if (ready.target && ready.profile && ready.profile->target) ready.target = ready.profile->target;
  ready.planner = planner_options(ready, options, devices);
  if (has_own_libraries(ready))
    ready.workspaces = std::make_shared<CpuWorkspaces>(kernels);
  else
    ready.workspaces = std::make_shared<NoWorkspaces>();
  ready.space = plan_members(ready, options);
  for (const std::string& warning : ready.space.warnings) log::warning(warning);
  // The user's runs and imports may belong to members that nobody has looked at.
  if (ready.space.is_cut_short) return ready;
  ready.user_runs = match_user_runs(user_runs, ready.space);
  if (options.import_dir) ready.imports = read_imports(*options.import_dir, ready.job, ready.space);
  return ready;
}

std::optional<MemoryTimeline> memory_timeline_of(const PlannedJob& ready,
                                                 const Experiment& experiment) {
  const JobSpec& job = ready.job;
  const int group_size = experiment.shape.size();
  if (!job.has_own_step() || !partition_violation(experiment.config, group_size).empty() ||
      !model_violation(job.model, experiment.config, group_size).empty())
    return std::nullopt;
  return memory_timeline(
      build_step_plan(job.model, experiment.config, group_size, 0, *ready.workspaces));
}

std::optional<ModelProfile> profile_of_model(const JobSpec& job, const PlannedSpace& space) {
  if (!job.is_model_known || !is_planned(job) || space.members.empty()) return std::nullopt;
  const Experiment& experiment = space.experiment(space.baseline.value_or(0));
  return model_profile(job.model, experiment.config, job.target);
}

JobInput job_input(const PlannedJob& ready) {
  JobInput input;
  input.run = true;
  input.model = ready.job.model;
  input.instruments = ready.job.instruments;
  input.measure = ready.job.tuning.measure;
  input.device_memory_bytes = ready.device_memory_bytes;
  input.host_memory_bytes = *ready.host_memory_bytes;
  for (const auto& [shape, count] : shapes_to_run(ready.space))
    std::ranges::move(aligned_groups(ready.training_ranks, shape.num_gpus, shape.num_nodes),
                      std::back_inserter(input.groups));
  return input;
}

}  // namespace dstune
