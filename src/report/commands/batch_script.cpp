#include "dstune/report/batch_script.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "commands/batch_system.hpp"
#include "dstune/core/launch_line.hpp"
#include "embedded/batch.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

/// A system's part of a script.
struct SystemPart {
  std::string_view text;
  const char* launch;        ///< the usual words before the program
  const char* threads;       ///< of a rank, where {} are asked for
  const char* arguments;     ///< behind a script's name, where they can be given there
  std::string_view pass_on;  ///< sends SIGUSR1 to the ranks
  std::string_view traps;    ///< more signals that come before a job's end, with a blank in front
};

constexpr std::string_view to_launcher = "kill -USR1 \"$pid\"";
/// The signal goes to the program, not to the command that shows its output.
constexpr std::string_view to_flux =
    "flux job kill --signal=SIGUSR1 \"$(flux job last)\" 2>/dev/null || kill -USR1 \"$pid\"";

const SystemPart& part_of(BatchSystem system) {
  static const std::array<SystemPart, 4> parts{{
      {embedded::batch_slurm, "mpirun -np $ranks --bind-to none", "${{SLURM_CPUS_PER_TASK:-{}}}",
       " [space.json] [options of dstune-mpi]", to_launcher, ""},
      {embedded::batch_pbs, "mpirun -np $ranks --hostfile \"$PBS_NODEFILE\" --bind-to none", "{}",
       "", to_launcher, ""},
      {embedded::batch_lsf, "mpirun -np $ranks --hostfile \"$LSB_DJOB_HOSTFILE\" --bind-to none",
       "1", "", to_launcher, " USR2"},
      {embedded::batch_flux, "flux run -N $nodes -n $ranks", "{}",
       " [space.json] [options of dstune-mpi]", to_flux, ""},
  }};
  return parts.at(static_cast<std::size_t>(system));
}

/// A job that tunes is warned before its end, and may be queued again, where a system has that.
std::string further_directives(const BatchResources& job, BatchSystem system) {
  if (system == BatchSystem::pbs) return "#PBS -r y\n";
  if (system != BatchSystem::slurm) return "";
  constexpr double max_warning_s = 180;
  constexpr double min_warning_s = 10;
  const double warning_s = std::clamp(job.time_limit_s / 20, min_warning_s, max_warning_s);
  return fmt::format(
      "# SIGUSR1 to this script before the end, so that dstune-mpi ends in good order.\n"
      "#SBATCH --signal=B:USR1@{}\n#SBATCH --requeue\n#SBATCH --open-mode=append\n",
      std::lround(warning_s));
}

/// "flux run" gives each rank its cores and GPUs; others take them from the job.
std::string launch_words(const BatchJob& job, BatchSystem system) {
  if (!job.launch.empty()) return job.launch;
  std::string words = part_of(system).launch;
  if (system != BatchSystem::flux) return words;
  const BatchResources& asked = job.resources;
  if (asked.cpus_per_task > 0) words += fmt::format(" -c {}", asked.cpus_per_task);
  if (asked.gpus_per_node.value_or(0) > 0) words += fmt::format(" -g {}", gpus_per_task(asked));
  return words;
}

/// The software that the job finds again.
std::string environment_text(const BatchEnvironment& environment) {
  std::string text;
  if (environment.modules.empty()) {
    text +=
        "# Load what your site calls its compiler and MPI, the same ones dstune-mpi was built "
        "with:\n"
        "# module load gcc openmpi\n";
  } else {
    text += embedded::batch_modules;
    text += "module load";
    for (const std::string& module : environment.modules) text += " " + shell_quote(module);
    text += " || exit 1\n";
  }
  if (!environment.conda_environment.empty()) {
    const std::string folder = shell_quote(environment.conda_environment);
    if (environment.conda_program.empty())
      text += fmt::format("export CONDA_PREFIX={0}\nexport PATH={0}/bin:$PATH\n", folder);
    else
      text += fmt::format("eval \"$({} shell.bash hook)\" && conda activate {} || exit 1\n",
                          shell_quote(environment.conda_program), folder);
  }
  if (!environment.python_environment.empty())
    text += fmt::format("source {} || exit 1\n",
                        shell_quote(environment.python_environment + "/bin/activate"));
  if (environment.conda_environment.empty() && environment.python_environment.empty())
    text +=
        "# Activate the Python environment of your training, if it is DeepSpeed's engine that "
        "runs:\n"
        "# source venv/bin/activate\n";
  return text;
}

/// Flux starts a script where it was submitted.
std::string folder_text(BatchSystem system) {
  if (system == BatchSystem::flux) return "";
  return fmt::format("cd \"{}\" || exit 1\n\n", words_of(system).submit_dir);
}

/// "1h", "90s": as the script reads it.
std::string short_duration(double seconds) {
  const long whole = std::lround(seconds);
  if (whole % 3600 == 0) return fmt::format("{}h", whole / 3600);
  return whole % 60 == 0 ? fmt::format("{}m", whole / 60) : fmt::format("{}s", whole);
}

std::string usual_file_name(const BatchJob& job, BatchSystem system) {
  return fmt::format("{}.{}", job.tuning_before_training_s ? "tune-then-train" : "tune",
                     words_of(system).ending);
}

}  // namespace

std::string batch_script(const BatchJob& job, BatchSystem system) {
  const BatchWords& words = words_of(system);
  const SystemPart& part = part_of(system);
  const BatchResources& asked = job.resources;
  const bool trains = job.tuning_before_training_s.has_value();
  const std::string name = job.file_name.empty() ? usual_file_name(job, system) : job.file_name;
  std::string options;
  for (const std::string& option : job.options) options += " " + shell_quote(option);
  const std::string system_text =
      filled(part.text, {{"RANKS", std::to_string(asked.nodes * asked.tasks_per_node)},
                         {"NODES", std::to_string(asked.nodes)},
                         {"TASKS_PER_NODE", std::to_string(asked.tasks_per_node)},
                         {"LAUNCH", shell_quote(launch_words(job, system))}});
  const std::string traps(part.traps);
  constexpr int usual_restarts = 10;
  return filled(
      embedded::batch,
      {{"THEN_TRAINS", trains ? ", and then trains with it" : ""},
       {"SYSTEM", words.name},
       {"SUBMIT", words.submit + one_line(shell_quote(name)) + part.arguments},
       {"DIRECTIVES", request_lines(asked, system) + further_directives(asked, system)},
       {"FOLDER", folder_text(system)},
       {"ENVIRONMENT", environment_text(job.environment)},
       {"PROGRAM", shell_quote(job.program)},
       {"SPACE", shell_quote(job.space)},
       {"RESULTS_DIR", shell_quote(job.results_dir)},
       {"REQUEUE", job.max_restarts > 0 ? "yes" : "no"},
       {"MAX_RESTARTS", std::to_string(job.max_restarts > 0 ? job.max_restarts : usual_restarts)},
       {"THREADS", fmt::format(fmt::runtime(part.threads), std::max(1, asked.cpus_per_task))},
       {"TRAINING_SETTINGS",
        trains ? filled(embedded::batch_training_settings,
                        {{"TUNE_TIME", short_duration(*job.tuning_before_training_s)}})
               : ""},
       {"ASKED_S", std::to_string(std::lround(asked.time_limit_s))},
       {"OPTIONS", options},
       {"SYSTEM_PART", system_text},
       {"PASS_ON", std::string(part.pass_on)},
       {"TRAPS", traps.empty() ? "" : "  trap :" + traps + "\n"},
       {"UNTRAPS", traps},
       {"TRAINING", trains ? filled(embedded::batch_training, {{"UNTRAPS", traps}}) : ""},
       {"MOST", trains ? "$TUNE_TIME" : ""},
       {"TRAIN", trains ? std::string(embedded::batch_training_call) : ""}});
}

}  // namespace dstune
