#pragma once
/// A whole run, from the input to the exit code.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/space/hosts.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// automatic: cuda where every rank has a GPU that can do what a step needs, else cpu.
enum class Backend { automatic, cpu, cuda };

/// How a job tells where it is. automatic: live on a terminal of its own, else lines.
enum class ProgressMode { automatic, live, lines, none };

/// The command line, decided.
struct JobOptions {
  std::string space_path;
  Backend backend = Backend::automatic;
  Overrides overrides;
  std::optional<std::string> hostfile;
  std::optional<HostFilter> host_filter;       ///< --include or --exclude
  std::optional<std::string> import_dir;       ///< --import
  std::vector<std::string> calibration_files;  ///< --calibrate
  bool dry_run = false;
  bool json_output = false;
  bool shows_all = false;  ///< --all: a plan's table, too
  std::optional<double> time_limit_s;
  std::optional<double> reserve_s;
  std::optional<double> trial_timeout_s;
  std::optional<std::string> profile_path;  ///< --profile-out
  bool dedicated_coordinator = false;
  bool quiet = false;
  bool verbose = false;
  ProgressMode progress = ProgressMode::automatic;
  bool has_own_terminal = false;  ///< stderr is one, and no launcher stands between
  /// The program: limits of time and the elapsed time count from here.
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::string command_line;  ///< as it was given, for environment.json
  std::string version;
  /// The reason why this process does not run in the Python that the workload deepspeed needs; or
  /// empty.
  std::string engine_refusal;
};

class Watchdog;

/// exit_status.json of a job that ends before its results are open: in the folder that the options
/// name, unless that is somebody else's or another job holds it. `makes_folder`: where there is
/// none yet, too. A dry run writes none. Rank 0 only. Local.
void write_early_end(const JobOptions& options, ExitCode code, const std::string& reason,
                     bool makes_folder = true) noexcept;

/// Reads the input and prints the plan. Starts no MPI and writes no file; the job is what the
/// launcher says in the environment (launched_topology()). Only rank 0 of several processes calls
/// it. Whatever is wrong becomes an exit code and a message. Local.
ExitCode plan_job(const JobOptions& options);

/// Reads and checks the input as plan_job() does, and plans nothing. Throws InputError, UsageError.
/// Local.
JobSpec input_of_plan(const JobOptions& options);

/// Reads the input, searches, writes the results. Rank 0 alone reads, prints and writes; every
/// rank returns the same. After a loss it does not return: MPI_Finalize would wait for the dead.
/// `thread_multiple`: what MPI granted. `watchdog`: this process's. Collective over the world.
/// Throws MpiError and LogicError; everything else becomes an exit code and a message on rank 0.
ExitCode run_job(const JobOptions& options, bool thread_multiple, Watchdog& watchdog);

}  // namespace dstune
