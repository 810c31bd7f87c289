#include "batch_command.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/report/batch_script.hpp"
#include "dstune/tune/job.hpp"

namespace dstune {
namespace {

namespace fs = std::filesystem;

/// Nodes, and ranks on each, that every group of the space fits into. Experiments of files have
/// groups of their own. Throws InputError.
GroupShape largest_group(const JobSpec& job) {
  GroupShape largest{1, 1};
  const auto add = [&](int num_gpus, int num_nodes) {
    largest.num_gpus = std::max(largest.num_gpus, num_gpus);
    largest.num_nodes = std::max(largest.num_nodes, num_nodes);
  };
  for (const std::string& path : job.experiment_files) {
    const json::Value experiment = json::Document::read(path).root();
    const auto count = [&](const char* key) {
      const auto value = experiment.is_object() ? experiment.find(key) : experiment.end();
      return value != experiment.end() && value->is_number_integer() ? value->get<int>() : 1;
    };
    add(count("num_gpus"), count("num_nodes"));
  }
  if (job.experiment_files.empty())
    for (const GroupShape& shape : job.shapes) add(shape.num_gpus, shape.num_nodes);
  return largest;
}

bool names_groups(const JobSpec& job) {
  const json::Value& root = job.document->root();
  const auto section = root.find("dstune");
  return section != root.end() && section->is_object() && section->contains("resources");
}

/// The nodes and ranks of the job. Throws UsageError where a group does not fit.
BatchResources resources_of(const CommandLine& line, const JobSpec& job) {
  const BatchRequest& asked = *line.batch;
  const GroupShape largest = largest_group(job);
  // Without named groups every rank of the job trains.
  const bool takes_any = !names_groups(job) && job.experiment_files.empty();
  BatchResources resources;
  resources.nodes = asked.nodes.value_or(largest.num_nodes);
  const int gpus = asked.gpus_per_node.value_or(largest.num_gpus);
  resources.tasks_per_node = asked.tasks_per_node.value_or(gpus);
  if (!takes_any &&
      (largest.num_nodes > resources.nodes || largest.num_gpus > resources.tasks_per_node))
    throw UsageError(fmt::format(
        "the space has groups of {0} ranks on each of {1}, and the batch job {2} on each of {3}: "
        "write --nodes {4} --tasks-per-node {0}, or take smaller groups",
        largest.num_gpus, format_count(largest.num_nodes, "node"), resources.tasks_per_node,
        format_count(resources.nodes, "node"), std::max(largest.num_nodes, resources.nodes)));
  if (takes_any && !asked.nodes && !asked.gpus_per_node && !asked.tasks_per_node &&
      largest.size() == 1)
    log::warning(log_text::batch_of_one_rank);
  // Ranks without GPUs are asked for by their number alone.
  if (line.job.backend == Backend::cpu)
    resources.gpus_per_node = 0;
  else if (asked.gpus_per_node || !asked.tasks_per_node || line.job.backend == Backend::cuda)
    resources.gpus_per_node = asked.gpus_per_node.value_or(resources.tasks_per_node);
  resources.cpus_per_task = asked.cpus_per_task;
  resources.time_limit_s = asked.time_limit_s;
  resources.account = asked.account;
  resources.queue = asked.queue;
  resources.directives = asked.directives;
  resources.job_name =
      asked.job_name.value_or(asked.tune_time_s ? "dstune-tune-then-train" : resources.job_name);
  return resources;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

/// The environment of this shell.
BatchEnvironment environment_of(const BatchRequest& asked) {
  BatchEnvironment found{.modules = asked.modules,
                         .python_environment = variable("VIRTUAL_ENV"),
                         .conda_environment = variable("CONDA_PREFIX"),
                         .conda_program = variable("CONDA_EXE")};
  if (!found.modules.empty()) {
    std::erase(found.modules, "");
    return found;
  }
  const std::string loaded = variable("LOADEDMODULES");
  for (const std::string_view name : split(loaded, ':'))
    if (!name.empty()) found.modules.emplace_back(name);
  return found;
}

/// The file that runs here.
std::string own_path() {
  std::error_code failed;
  const fs::path path = fs::read_symlink("/proc/self/exe", failed);
  return failed ? "dstune-mpi" : path.string();
}

BatchJob job_of_script(const CommandLine& line, const JobSpec& spec) {
  const BatchRequest& asked = *line.batch;
  BatchJob job;
  job.program = own_path();
  job.space = fs::absolute(line.job.space_path).lexically_normal().string();
  job.results_dir = line.job.overrides.results_dir.value_or(job.results_dir);
  job.options = asked.job_words;
  job.launch = asked.launch;
  job.resources = resources_of(line, spec);
  job.environment = environment_of(asked);
  job.max_restarts = asked.max_restarts;
  job.tuning_before_training_s = asked.tune_time_s;
  return job;
}

}  // namespace

ExitCode print_batch_script(const CommandLine& line) {
  try {
    JobOptions options = line.job;
    // These are the job's, and need not be a whole machine's.
    options.overrides.machine.gpus_per_node.reset();
    options.overrides.machine.num_nodes.reset();
    const JobSpec spec = input_of_plan(options);
    if (line.batch->tune_time_s && !spec.training_command)
      throw InputError({spec.document->problem(
          "/dstune/training_command",
          "--then-train needs the command of your training: write it here")});
    output() << batch_script(job_of_script(line, spec), line.batch->system) << std::flush;
    return ExitCode::ok;
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) log::error(problem.text());
    return ExitCode::bad_input;
  }
}

}  // namespace dstune
