#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/plan/memory.hpp"
#include "dstune/train/workload.hpp"
#include "start/preparation.hpp"

namespace dstune {
namespace {

/// The place in the space of the member that a run belongs to. A twin that was pruned leaves its
/// run to the one that stands for it.
std::optional<std::size_t> find_member(const PlannedSpace& space, const DeepSpeedRun& run) {
  std::vector<const Experiment*> experiments;
  std::vector<std::size_t> indices;
  for (std::size_t index = 0; index < space.members.size(); ++index) {
    const PlannedExperiment& planned = space.members[index].planned;
    if (planned.status == PlanStatus::pruned) continue;
    experiments.push_back(&planned.experiment);
    indices.push_back(index);
  }
  const auto place = find_experiment(run, experiments);
  return place ? std::optional(indices[*place]) : std::nullopt;
}

}  // namespace

std::string first_violation(const Communicator& world, const std::function<void()>& work) {
  std::string mine;
  try {
    work();
  } catch (const std::exception& error) {
    mine = error.what();
  }
  const std::vector<std::string> all = gather_texts(world, mine);
  const auto first = std::ranges::find_if_not(all, &std::string::empty);
  if (first == all.end() || first == all.begin()) return all.front();
  return "rank " + std::to_string(first - all.begin()) + ": " + *first;
}

std::vector<Import> read_imports(const std::string& dir, const JobSpec& job,
                                 const PlannedSpace& space) {
  const DeepSpeedRuns found = read_deepspeed_runs(dir, job);
  for (const std::string& skipped : found.skipped) log::warning("--import: " + skipped);
  std::vector<Import> imports;
  for (const DeepSpeedRun& run : found.runs) {
    if (const auto index = find_member(space, run)) {
      imports.push_back({*index, run.path, run.measurement});
    } else {
      log::warning(
          fmt::format("--import: {} ran a configuration that is not in the space", run.path));
    }
  }
  if (imports.empty()) {
    throw InputError({{dir, "", 0,
                       "none of its results is of a configuration in the space: give the results "
                       "that belong to it"}});
  }
  return imports;
}

std::vector<DeepSpeedRun> read_user_runs(const std::vector<std::string>& paths,
                                         const JobSpec& job) {
  json::Problems problems;
  std::vector<DeepSpeedRun> runs;
  for (const std::string& path : paths) {
    try {
      runs.push_back(read_deepspeed_run(path, job));
    } catch (const InputError& error) {
      for (const Problem& problem : error.problems()) problems.add(problem);
    }
  }
  problems.check();
  return runs;
}

std::int64_t memory_offset(const std::vector<DeepSpeedRun>& runs, const JobSpec& job) {
  const bool is_planned = job.workload.kind == WorkloadKind::transformer;
  if (!is_planned || job.target.framework == TargetFramework::self) return 0;
  std::int64_t sum_bytes = 0;
  std::int64_t count = 0;
  for (const DeepSpeedRun& run : runs) {
    const std::int64_t measured_bytes = run.measurement.peak_memory.total_bytes;
    if (measured_bytes == 0) continue;
    const TargetMemory planned = target_memory(job.model, run.config, run.group_size, job.target);
    sum_bytes += measured_bytes - (planned.total_bytes - planned.parts.at("framework"));
    ++count;
  }
  return count > 0 ? sum_bytes / count : 0;
}

std::vector<UserRun> match_user_runs(const std::vector<DeepSpeedRun>& runs,
                                     const PlannedSpace& space) {
  json::Problems problems;
  std::vector<UserRun> found;
  for (const DeepSpeedRun& run : runs) {
    const auto index = find_member(space, run);
    if (!index) {
      problems.add({run.path, "", 0,
                    "its configuration is not in the space, so that there is nothing to compare it "
                    "with: add its values to the lists"});
      continue;
    }
    const std::vector<double>& times_s = run.measurement.step_times_s;
    found.push_back(
        {*index, run.path, mean_interval(times_s).mean, run.measurement.peak_memory.total_bytes});
  }
  problems.check();
  return found;
}

std::string plugin_hash(const WorkloadSpec& workload) {
  return hash128(check_plugin_library(workload.library_path));
}

LoadedPlugin load_plugin_everywhere(const Communicator& world, const WorkloadSpec& workload,
                                    const PluginLoading& loading) {
  if (workload.kind != WorkloadKind::plugin) return {};
  LoadedPlugin loaded;
  loaded.violation = first_violation(world, [&] {
    if (plugin_hash(workload) != workload.library_hash) {
      throw Error(workload.library_path +
                  " is another file than on rank 0: put the same one on every host");
    }
  });
  if (!loaded.violation.empty()) return loaded;
  bool hangs = false;
  loaded.violation = first_violation(world, [&] {
    try {
      load_plugin(workload.library_path, loading);
    } catch (const ConstructorHangs&) {
      hangs = true;
      throw;
    }
  });
  if (!loaded.violation.empty())
    for (const std::string& word : gather_texts(world, hangs ? "hangs" : ""))
      loaded.hangs = loaded.hangs || !word.empty();
  return loaded;
}

Problem plugin_problem(const json::Document& document, const std::string& violation) {
  const std::string pointer = "/dstune/workload/library";
  return {document.file(), pointer, document.line(pointer), violation};
}

std::optional<std::int64_t> todays_batch(const Preparation& ready) {
  if (ready.job.todays_batch) return ready.job.todays_batch->samples;
  if (!ready.space.baseline) return std::nullopt;
  const PlannedMember& baseline = ready.space.members[*ready.space.baseline];
  if (baseline.micro_batch_chain) return std::nullopt;
  const Experiment& experiment = baseline.planned.experiment;
  return global_batch(experiment.config, experiment.shape.size());
}

void check_training_command(const JobSpec& job) {
  if (!job.training_command) return;
  std::string violation = launch_line_violation(*job.training_command);
  if (violation.empty()) violation = launch_counts_violation(*job.training_command, job.shapes);
  if (violation.empty()) return;
  const std::string pointer = "/dstune/training_command";
  throw InputError({{job.document->file(), pointer, job.document->line(pointer), violation}});
}

}  // namespace dstune
