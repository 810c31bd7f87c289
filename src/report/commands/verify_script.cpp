#include "dstune/report/verify_script.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/report/launch_line.hpp"
#include "file_names.hpp"

namespace dstune {

namespace {

/// For a comment or a message: one line, whatever a path holds.
std::string one_line(std::string text) {
  for (char& letter : text)
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = '?';
  return text;
}

constexpr const char* slurm_header = R"BASH(#SBATCH --job-name=dstune-verify
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={gpus}
##SBATCH --gpus-per-node={gpus}          # on GPU nodes: remove one of the two #
##SBATCH --exclusive                # measurements do not like neighbours
#SBATCH --time=02:00:00
#SBATCH --output=%x-%j.log
)BASH";

constexpr const char* pbs_header = R"BASH(#PBS -N dstune-verify
#PBS -l select={nodes}:ncpus={gpus}:mpiprocs={gpus}
#PBS -l walltime=02:00:00
# On GPU nodes add  :ngpus={gpus}  to the select line, and all of a node's ncpus.
#PBS -l place=scatter:excl
#PBS -j oe
)BASH";

constexpr const char* slurm_hosts = R"BASH(# The hosts of this job; "localhost" outside one.
hosts() {
  if [[ -n ${SLURM_JOB_NODELIST:-} ]]; then
    scontrol show hostnames "$SLURM_JOB_NODELIST"
  else
    echo localhost
  fi
}
)BASH";

constexpr const char* pbs_hosts = R"BASH(# The hosts of this job; "localhost" outside one.
hosts() {
  if [[ -n ${PBS_NODEFILE:-} ]]; then
    awk '!seen[$1]++ { print $1 }' "$PBS_NODEFILE"
  else
    echo localhost
  fi
}
)BASH";

constexpr const char* body =
    R"BASH(# What became of a run that wrote no metrics.json: run_ended_as EXIT_CODE LOG
run_ended_as() {
  if [[ $1 -eq 124 ]]; then
    echo timed_out
  elif grep -qiE 'out of memory|OutOfMemoryError|oom[-_]kill|cannot allocate memory|DefaultCPUAllocator' "$2"; then
    echo out_of_memory
  else
    echo failed
  fi
}

# run NAME NUM_NODES NUM_GPUS EXPERIMENT CONFIG COMMAND: one configuration, in a folder of its own. With
# the "autotuning" section of its configuration DeepSpeed writes metrics.json after a few steps and leaves.
run() {
  local name=$1 dir=$VERIFY_DIR/$1 code status began=$SECONDS
  export NUM_NODES=$2 NUM_GPUS=$3 CONFIG=$dir/ds_config.json
  if [[ -s $dir/metrics.json && "$(cat "$dir/ds_config.json")" == "$5" ]]; then
    echo "$name: was run before"
    return
  fi
  mkdir -p "$dir" || exit 7
  rm -f "$dir/metrics.json" "$dir/status.json"
  printf '%s\n' "$4" >"$dir/exp.json"
  printf '%s\n' "$5" >"$dir/ds_config.json"
  printf '%s\n' "$6" >"$dir/cmd.txt"
  echo "$name: $6"
  eval "timeout --kill-after=60 \"\$RUN_LIMIT\" $TRAIN_LAUNCH bash \"\$dir/cmd.txt\"" >"$dir/log.txt" 2>&1
  code=$?
  status=ok
  [[ -s $dir/metrics.json ]] || status=$(run_ended_as "$code" "$dir/log.txt")
  printf '{"status": "%s", "exit_code": %d}\n' "$status" "$code" >"$dir/status.json"
  echo "$name: $status after $((SECONDS - began)) s"
  if [[ $status != ok ]]; then
    unfinished=$((unfinished + 1))
    echo "--- the end of $dir/log.txt"
    tail -n 15 "$dir/log.txt"
    echo "---"
  fi
}
unfinished=0
mkdir -p "$VERIFY_DIR" || exit 7
)BASH";

std::string header(const VerificationJob& job, BatchSystem system) {
  const bool is_slurm = system == BatchSystem::slurm;
  int nodes = 1;
  int gpus = 1;
  for (const VerificationJob::Run& run : job.runs) {
    nodes = std::max(nodes, run.experiment->shape.num_nodes);
    gpus = std::max(gpus, run.experiment->shape.num_gpus);
  }
  return fmt::format(
             "#!/bin/bash\n"
             "# Runs the best configurations that dstune-mpi found, and the one that it started\n"
             "# from, in DeepSpeed itself, with your own training command. dstune-mpi writes this\n"
             "# file, anew with each better answer. From the folder that your training starts in:\n"
             "#   {} {}\n"
             "# Then read the results back: the command that tuned, with this option added:\n"
             "#   --import {}\n",
             is_slurm ? "sbatch" : "qsub", one_line(shell_quote(job.script_path)),
             one_line(shell_quote(job.folder))) +
         fmt::format(fmt::runtime(is_slurm ? slurm_header : pbs_header), fmt::arg("nodes", nodes),
                     fmt::arg("gpus", gpus));
}

std::string settings(const VerificationJob& job, BatchSystem system) {
  std::string text = fmt::format(
      "\nset -uo pipefail\n\n"
      "# What your site calls what your training needs:\n"
      "# module purge\n"
      "# module load ...\n\n"
      "cd \"${{{}:-.}}\" || exit 1\n"
      "VERIFY_DIR={}\n"
      "# A run that hangs is ended after so long.\n"
      "RUN_LIMIT=${{RUN_LIMIT:-30m}}\n"
      "# Words before each run's command, for one that does not start its own processes:\n"
      "#   TRAIN_LAUNCH='srun -N $NUM_NODES --ntasks-per-node=$NUM_GPUS'\n"
      "TRAIN_LAUNCH=${{TRAIN_LAUNCH:-}}\n",
      system == BatchSystem::slurm ? "SLURM_SUBMIT_DIR" : "PBS_O_WORKDIR", shell_quote(job.folder));
  if (!job.training_command) {
    text +=
        "# Fill in how you start your training; the space has no dstune.training_command. Of each\n"
        "# run, $CONFIG is the DeepSpeed configuration, $NUM_NODES and $NUM_GPUS (of a node) the\n"
        "# group:\n"
        "#   TRAINING_COMMAND='deepspeed --num_nodes $NUM_NODES --num_gpus $NUM_GPUS train.py "
        "--deepspeed_config \"$CONFIG\"'\n"
        "TRAINING_COMMAND=${TRAINING_COMMAND:-}\n"
        "if [[ -z $TRAINING_COMMAND ]]; then\n"
        "  echo \"how is your training started? Fill in TRAINING_COMMAND in this script, or give "
        "\" "
        "\\\n"
        "    \"dstune.training_command in the space and run dstune-mpi again\" >&2\n"
        "  exit 3\n"
        "fi\n";
  }
  return text + "\n";
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
  const auto dumped = [](const json::Value& value) {
    return shell_quote(value.dump(-1, ' ', false, json::Value::error_handler_t::replace));
  };
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
                                    experiment.ds_config, shape, job.arg_mappings,
                                    shape.num_nodes > 1 ? std::optional(hostfile) : std::nullopt))
          : "\"$TRAINING_COMMAND\"";
  return text + fmt::format("run {} {} {} \\\n  {} \\\n  {} \\\n  {}\n",
                            shell_quote(experiment.name), shape.num_nodes, shape.num_gpus,
                            dumped(description), dumped(config), command);
}

}  // namespace

json::Value verification_config(const Experiment& experiment, const std::string& metrics_path) {
  json::Value config = experiment.ds_config;
  config.erase("dstune");
  // Its log has a line with the speed and the memory of each step then.
  config["steps_per_print"] = 1;
  config["log_level"] = "info";
  config["autotuning"] = {{"enabled", true},
                          {"start_profile_step", verification_start_step},
                          {"end_profile_step", verification_end_step},
                          {"metric_path", metrics_path}};
  return config;
}

std::string verify_script(const VerificationJob& job, BatchSystem system) {
  require(!job.runs.empty(), "there is something to verify");
  const std::string hostfile = job.folder + "/hostfile";
  std::string text = header(job, system) + settings(job, system);
  const std::string hosts = hostfile_text(job, hostfile);
  if (!hosts.empty())
    text += std::string(system == BatchSystem::slurm ? slurm_hosts : pbs_hosts) + "\n";
  text += body + hosts;
  for (const VerificationJob::Run& run : job.runs) text += run_text(job, run, hostfile);
  text += "\necho \"the results are in $VERIFY_DIR\"\n[[ $unfinished -eq 0 ]]\n";
  return text;
}

}  // namespace dstune
