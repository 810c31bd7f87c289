#pragma once
/// Batch scripts that tune in a job of Slurm, PBS, LSF or Flux. The program prints them and starts
/// nothing. Local.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstune {

enum class BatchSystem { slurm, pbs, lsf, flux };

/// Nothing where no batch system has this name.
[[nodiscard]] std::optional<BatchSystem> batch_system_of(std::string_view name);

/// The nodes, tasks and time that a job asks for.
struct BatchResources {
  std::string job_name = "dstune-tune";
  int nodes = 1;
  int tasks_per_node = 1;
  int cpus_per_task = 0;  ///< 0: the script does not say it
  /// Absent: nobody knows whether there are GPUs, so that the script has the line as a comment.
  std::optional<int> gpus_per_node{};
  double time_limit_s = 3600;
  std::string account{}, queue{};         ///< empty: the site's default
  std::vector<std::string> directives{};  ///< further ones, without the system's mark
};

/// The software environment that a job finds again.
struct BatchEnvironment {
  std::vector<std::string> modules{};  ///< to be loaded
  std::string python_environment{};    ///< VIRTUAL_ENV: a folder
  std::string conda_environment{};     ///< CONDA_PREFIX: a folder
  std::string conda_program{};         ///< CONDA_EXE; empty: the path alone is set
};

/// A job that tunes.
struct BatchJob {
  std::string program;  ///< how the job starts this program
  std::string space;
  std::string results_dir = "autotuning_results";  ///< seen from the folder of submission
  std::vector<std::string> options{};              ///< of the program's command line
  std::string launch{};                            ///< a shell's words; empty: mpirun, or flux run
  BatchResources resources{};
  BatchEnvironment environment{};
  int max_restarts = 0;                              ///< how often it is queued again; 0: not
  std::optional<double> tuning_before_training_s{};  ///< it trains behind that; absent: it does not
  std::string file_name{};  ///< how the usage names the script; empty: as usual
};

/// Returns the reason why a text can not be a part of a directive; empty if it can.
[[nodiscard]] std::string directive_violation(std::string_view text);

/// Likewise of a name in a directive: of a job, an account or a queue.
[[nodiscard]] std::string directive_word_violation(std::string_view text);

/// A bash script. Its settings may be overridden by variables (docs/options.md). Throws LogicError
/// where a directive has a violation.
std::string batch_script(const BatchJob& job, BatchSystem system);

}  // namespace dstune
