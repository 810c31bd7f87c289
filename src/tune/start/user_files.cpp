#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/launch_line.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/plan/memory.hpp"
#include "dstune/train/workload.hpp"
#include "start/planned_job.hpp"

namespace dstune {
namespace {

/// The place in the space of the member that a run belongs to. A twin that was pruned leaves its
/// run to the one that stands for it.
std::optional<std::size_t> find_member(const PlannedSpace& space, const DeepSpeedRun& run) {
  std::optional<std::size_t> found;
  auto member = space.members.begin();
  for (std::size_t index = 0; index < space.members.size(); ++index, ++member) {
    if (space.status(index) == PlanStatus::pruned) continue;
    const Experiment& experiment = member->planned.experiment;
    if (!find_experiment(run, {&experiment})) continue;
    if (experiment.name == run.name) return index;
    if (!found) found = index;
  }
  return found;
}

}  // namespace

std::vector<Import> read_imports(const std::string& dir, const JobSpec& job,
                                 const PlannedSpace& space) {
  const DeepSpeedRuns found = read_deepspeed_runs(dir, job);
  for (const std::string& skipped : found.skipped)
    log::warning(fmt::format(log_text::import_skipped, skipped));
  std::vector<Import> imports;
  for (const DeepSpeedRun& run : found.runs) {
    if (const auto index = find_member(space, run)) {
      imports.push_back({*index, run.path, run.measurement});
    } else {
      log::warning(fmt::format(log_text::import_not_in_space, run.path));
    }
  }
  if (imports.empty()) {
    throw InputError(
        {{dir, "", 0,
          "none of its results is of a member of the space: give the results that belong to it"}});
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
  const bool is_planned = job.has_own_step();
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
                    "no member of the space has its configuration, so there is nothing to compare "
                    "it with: add its values to the lists"});
      continue;
    }
    const std::vector<double>& times_s = run.measurement.step_times_s;
    found.push_back(
        {*index, run.path, mean_interval(times_s).mean, run.measurement.peak_memory.total_bytes});
  }
  problems.check();
  return found;
}

std::optional<std::int64_t> todays_batch(const PlannedJob& ready) {
  if (ready.job.todays_batch) return ready.job.todays_batch->samples;
  if (!ready.space.baseline) return std::nullopt;
  const PlannedMember& baseline = ready.space.members[*ready.space.baseline];
  if (baseline.micro_batch_chain) return std::nullopt;
  return batch_of(baseline.planned.experiment);
}

void check_training_command(const JobSpec& job) {
  if (!job.training_command) return;
  std::string violation = launch_line_violation(*job.training_command);
  if (violation.empty()) violation = launch_counts_violation(*job.training_command, job.shapes);
  if (violation.empty()) return;
  const std::string pointer = "/dstune/training_command";
  throw InputError({job.document->problem(pointer, violation)});
}

}  // namespace dstune
