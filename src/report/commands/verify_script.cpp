#include "dstune/report/verify_script.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "commands/batch_system.hpp"
#include "dstune/base/error.hpp"
#include "embedded/verify.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// How a job tells its hosts.
struct HostList {
  const char* variable;  ///< that says which a job has
  const char* command;   ///< that writes one a line, the variable behind it
};

HostList host_list(BatchSystem system) {
  require(system == BatchSystem::slurm || system == BatchSystem::pbs, "there is such a script");
  if (system == BatchSystem::slurm) return {"SLURM_JOB_NODELIST", "scontrol show hostnames"};
  return {"PBS_NODEFILE", "awk '!seen[$1]++ { print $1 }'"};
}

/// The first optimizer step, counted from 0, in which DeepSpeed's autotuning counts operations, and
/// the last one; a run makes one step more than that and leaves.
constexpr int start_step = 3;
constexpr int end_step = 22;

constexpr double verification_limit_s = 7200;

/// The request for the nodes and GPUs that all runs fit into.
std::string directives(const VerificationJob& job, BatchSystem system) {
  BatchResources resources{.job_name = "dstune-verify", .time_limit_s = verification_limit_s};
  for (const VerificationJob::Run& run : job.runs) {
    const GroupShape& shape = run.experiment->shape;
    resources.nodes = std::max(resources.nodes, shape.num_nodes);
    resources.tasks_per_node = std::max(resources.tasks_per_node, shape.num_gpus);
  }
  return request_lines(resources, system);
}

/// A line a host for DeepSpeed's launcher, where a group has several nodes.
std::string hostfile_text(const VerificationJob& job, const std::string& path) {
  int gpus = 0;
  for (const VerificationJob::Run& run : job.runs) {
    const GroupShape& shape = run.experiment->shape;
    if (shape.num_nodes > 1) gpus = std::max(gpus, shape.num_gpus);
  }
  if (gpus == 0) return "";
  return fmt::format("hosts | sed 's/$/ slots={}/' >{} || exit 7\n", gpus, shell_quote(path));
}

std::string run_text(const VerificationJob& job, const VerificationJob::Run& run,
                     const std::string& hostfile) {
  const Experiment& experiment = *run.experiment;
  const GroupShape& shape = experiment.shape;
  require(file_name::is_experiment_name(experiment.name), "the name is safe as a folder's");
  const std::string folder = fmt::format("{}/{}", job.folder, experiment.name);
  const json::Value config =
      verification_config(experiment, fmt::format("{}/{}", folder, file_name::metrics));
  const json::Value description = {{"name", experiment.name},
                                   {"num_gpus", shape.num_gpus},
                                   {"num_nodes", shape.num_nodes},
                                   {"sequence_length", experiment.config.sequence_length},
                                   {"recompute", to_text(experiment.config.recompute)}};
  std::string text = fmt::format("\n# {}\n", one_line(run.why));
  if (experiment.config.recompute != Recompute::none)
    text += fmt::format(
        "# It recomputes activations ({}), which DeepSpeed's configuration does not say: turn\n"
        "# activation checkpointing on in your training.\n",
        to_text(experiment.config.recompute));
  const std::string command =
      job.training_command
          ? shell_quote(launch_line(*job.training_command,
                                    fmt::format("{}/{}", folder, file_name::config),
                                    experiment.ds_config, experiment.config.recompute, shape,
                                    shape.num_nodes > 1 ? std::optional(hostfile) : std::nullopt))
          : "\"$TRAINING_COMMAND\"";
  return text + fmt::format("run {} {} {} \\\n  {} \\\n  {} \\\n  {}\n",
                            shell_quote(experiment.name), shape.num_nodes, shape.num_gpus,
                            shell_quote(json_text(description)), shell_quote(json_text(config)),
                            command);
}

}  // namespace

json::Value verification_config(const Experiment& experiment, const std::string& metrics_path) {
  json::Value config = experiment.ds_config;
  config.erase("dstune");
  // Its log has a line with the speed and the memory of each step then.
  config["steps_per_print"] = 1;
  config["log_level"] = "info";
  config["autotuning"] = {{"enabled", true},
                          {"start_profile_step", start_step},
                          {"end_profile_step", end_step},
                          {"metric_path", metrics_path}};
  return config;
}

std::string verify_script(const VerificationJob& job, BatchSystem system) {
  require(!job.runs.empty(), "there is something to verify");
  const HostList list = host_list(system);
  const std::string hostfile = job.folder + "/hostfile";
  const std::string hostfile_line = hostfile_text(job, hostfile);
  const std::string hosts =
      filled(embedded::hosts, {{"VARIABLE", list.variable}, {"LIST", list.command}});
  std::string runs;
  for (const VerificationJob::Run& run : job.runs) runs += run_text(job, run, hostfile);
  return filled(
      embedded::verify,
      {{"SUBMIT", words_of(system).submit},
       {"SUBMIT_DIR", words_of(system).submit_dir},
       {"SCRIPT", one_line(shell_quote(job.script_path))},
       {"SHOWN_FOLDER", one_line(shell_quote(job.folder))},
       {"FOLDER", shell_quote(job.folder)},
       {"DIRECTIVES", directives(job, system)},
       {"TRAINING_COMMAND", job.training_command ? "" : std::string(embedded::training_command)},
       {"HOSTS", hostfile_line.empty() ? "" : hosts},
       {"HOSTFILE", hostfile_line},
       {"RUNS", runs}});
}

}  // namespace dstune
