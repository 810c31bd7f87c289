#include "program.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "batch_command.hpp"
#include "check_files.hpp"
#include "dstune/base/crash.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/core/user_python.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/group/nccl_library.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/report/folder_lock.hpp"
#include "dstune/report/folder_status.hpp"
#include "dstune/tune/check.hpp"
#include "dstune/tune/job.hpp"
#include "dstune/tune/watchdog.hpp"
#include "help_text.hpp"
#include "limits.hpp"
#include "options.hpp"

namespace dstune {
namespace {

int code(ExitCode exit_code) {
  return static_cast<int>(exit_code);
}

/// This process's rank, as launchers say it before MPI starts; null where none has started it.
const char* launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return rank;
  return nullptr;
}

/// Tells whether this process is the one that speaks.
bool is_first_process() {
  const char* const rank = launched_rank();
  return rank == nullptr || std::strcmp(rank, "0") == 0;
}

/// Tells whether rows of stderr can be rewritten. MPI is not asked: it changes the environment.
bool has_own_terminal() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && kind != nullptr && std::strcmp(kind, "dumb") != 0 &&
         launched_rank() == nullptr;
}

/// NO_COLOR is what many programs take for a wish (no-color.org).
bool is_colored_unasked() {
  const char* const refused = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) != 0 && (refused == nullptr || *refused == '\0');
}

/// The first process says what is wrong; mpirun ends every process as soon as one has left with an
/// error, so the others leave later.
void report_problem(const std::string& message) {
  if (is_first_process()) {
    log::error(message);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

/// Started by srun without PMI support every task would be a world of its own and do the whole job.
bool is_launched_alone_by_mistake() {
  const auto has = [](const char* name) { return std::getenv(name) != nullptr; };
  const bool is_in_step = has("SLURM_STEP_ID") && has("SLURM_PROCID");
  const bool has_mpi_launcher = has("OMPI_COMM_WORLD_SIZE") || has("PMIX_RANK") || has("PMI_RANK");
  const char* tasks = std::getenv("SLURM_NTASKS");
  return tasks != nullptr && std::atoi(tasks) > 1 && is_in_step && !has_mpi_launcher;
}

std::string cuda_text() {
  const std::string toolkit = kernels::cuda_toolkit();
  if (toolkit.empty()) return "not built";
  const std::string violation = cuda_unavailable_reason();
  if (!violation.empty()) return fmt::format("toolkit {}, not used: {}", toolkit, violation);
  const kernels::CudaLibraries libraries = kernels::cuda_libraries();
  return fmt::format("toolkit {}, GPUs that answer: {}, products: {}, attention: {}", toolkit,
                     kernels::num_cuda_devices(), libraries.matmul, libraries.attention);
}

std::string version_text() {
  const std::vector<std::string> folders = gpu_library_folders(own_python_environment());
  kernels::set_cuda_library_folders(folders);
  return fmt::format(
      "dstune-mpi {}\nMPI: {}\nmatrix products: {}\nCPU kernels: {}\nCUDA: {}\nNCCL: {}\n",
      DSTUNE_VERSION, MpiEnvironment::library_version(), kernels::matmul_library(),
      kernels::cpu_table().name, cuda_text(),
      nccl::find_library(nccl::library_name, folders).description);
}

/// Logs for --verbose before anything runs.
void describe(const CommandLine& line) {
  for (const std::string& option : line.understood) log::debug("option " + option);
  log::debug(fmt::format("dstune-mpi {}", DSTUNE_VERSION));
  log::debug("MPI: " + MpiEnvironment::library_version());
  log::debug(fmt::format("matrix products: {}", kernels::matmul_library()));
  log::debug(fmt::format("CPU kernels: {}", kernels::cpu_table().name));
}

/// A check writes no file.
void tell_early_end(const CommandLine& line, ExitCode ended, const std::string& reason) {
  if (line.check)
    print_unfinished_check(line.job, ended, reason);
  else
    write_early_end(line.job, ended, reason);
}

/// Says why there can be no MPI; empty where nothing speaks against it.
std::string no_mpi_reason() {
  if (is_launched_alone_by_mistake())
    return "srun started this process without MPI, alone among SLURM_NTASKS: use srun --mpi=pmix, "
           "or mpirun inside the allocation";
  return MpiEnvironment::unavailable_reason();
}

int run_with_mpi(int argc, char** argv, const CommandLine& line, Watchdog& watchdog) {
  const std::string reason = no_mpi_reason();
  if (!reason.empty()) {
    report_problem(reason);
    if (is_first_process()) tell_early_end(line, ExitCode::internal, reason);
    return code(ExitCode::internal);
  }
  MpiEnvironment environment(argc, argv);
  crash::watch();
  const bool thread_multiple = MpiEnvironment::threads_allowed();
  const int exit_code = line.check ? code(check_machine(line.job, thread_multiple, watchdog))
                                   : code(run_job(line.job, thread_multiple, watchdog));
  watchdog.begin_end(exit_code);
  environment.finalize();
  // Objects that CUDA destroys at the end of a process may wait for the GPU.
  if (has_given_up_cuda()) watchdog.leave(exit_code);
  return watchdog.code_behind_mpi(exit_code);
}

ExitCode plan(const JobOptions& options) {
  crash::watch();
  crash::name_thread("the plan");
  crash::answer_for_job(true);
  return plan_job(options);
}

/// The options of a refused command line, as far as it says where the results go: --results-dir
/// and the last word.
JobOptions guessed_options(int argc, char** argv) {
  JobOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    constexpr std::string_view results = "--results-dir";
    if (word == results && i + 1 < argc) options.overrides.results_dir = argv[i + 1];
    if (word.starts_with(results) && word.substr(results.size()).starts_with('='))
      options.overrides.results_dir = std::string(word.substr(results.size() + 1));
    // These write no file.
    if (word == "--dry-run" ||
        (i == 1 && (word == "plan" || word == "check" || word == "status" || word == "batch")))
      options.dry_run = true;
  }
  std::error_code cause;
  if (argc > 1 && std::filesystem::is_regular_file(argv[argc - 1], cause))
    options.space_path = argv[argc - 1];
  return options;
}

bool is_place_known(const JobOptions& options) {
  return options.overrides.results_dir || !options.space_path.empty();
}

CommandLine command_line_of(int argc, char** argv) {
  try {
    return parse_command_line(argc, argv);
  } catch (const UsageError& error) {
    const JobOptions options = guessed_options(argc, argv);
    if (is_first_process())
      write_early_end(options, ExitCode::usage, error.what(), is_place_known(options));
    throw;
  }
}

/// exit_status.json of whatever goes wrong before the job has its folders.
class EarlyEnd {
 public:
  /// The place of it is known from here on.
  void know(const JobOptions& options) {
    if (is_first_process()) options_ = options;
  }
  void write(ExitCode code, const std::string& reason) const {
    if (options_) write_early_end(*options_, code, reason);
  }

 private:
  std::optional<JobOptions> options_;
};

/// Prints the state of a results folder's job. Local.
ExitCode show_status(const CommandLine& line) {
  try {
    const FolderStatus status = folder_status(*line.status_of);
    if (line.job.json_output)
      output() << json::ascii_text(status_json(status)) << std::endl;
    else
      output() << printable_lines(status_text(status)) << std::flush;
    return ExitCode::ok;
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) log::error(problem.text());
    return ExitCode::bad_input;
  }
}

/// The exit code of a command whose only result is what it prints.
int printed(ExitCode ended) {
  if (!has_lost_output()) return code(ended);
  report_problem("stdout can not be written: its disk may be full");
  return code(ExitCode::not_writable);
}

/// A help or the version.
std::string asked_text(const CommandLine& line) {
  if (!line.key_help.empty()) return line.key_help;
  return line.help ? help_text(line.command) : version_text();
}

int run(int argc, char** argv, const std::string& engine_refusal, Watchdog& watchdog) {
  EarlyEnd early;
  try {
    CommandLine line = command_line_of(argc, argv);
    if (line.help || line.version) {
      if (is_first_process()) output() << asked_text(line);
      return printed(ExitCode::ok);
    }
    if (line.status_of) {
      log::set_color(line.color.value_or(isatty(STDERR_FILENO) != 0));
      return printed(is_first_process() ? show_status(line) : ExitCode::ok);
    }
    const bool is_of_files = !line.check_files.empty();
    if (line.check && !is_of_files)
      watchdog.begin_check();
    else if (!line.check)
      early.know(line.job);
    if (is_first_process() && !is_of_files)
      watchdog.set_early_end([line](int exit_code, const std::string& reason) {
        tell_early_end(line, static_cast<ExitCode>(exit_code), reason);
      });
    line.job.version = DSTUNE_VERSION;
    // A plan for another cluster takes nothing from this machine.
    if (!line.job.dry_run || !line.job.hostfile)
      line.job.overrides.python = own_python_environment();
    line.job.engine_refusal = engine_refusal;
    line.job.has_own_terminal = has_own_terminal();
    log::set_level(line.level);
    log::set_color(line.color.value_or(is_colored_unasked()));
    if (line.job.verbose && is_first_process()) describe(line);
    if (is_of_files) return printed(is_first_process() ? check_files(line) : ExitCode::ok);
    if (line.batch) return printed(is_first_process() ? print_batch_script(line) : ExitCode::ok);
    // No MPI: it need not be able to start, and mpirun returns the first process's code.
    if (line.job.dry_run) return printed(is_first_process() ? plan(line.job) : ExitCode::ok);
    return run_with_mpi(argc, argv, line, watchdog);
  } catch (const UsageError& error) {
    report_problem(error.what());
    early.write(ExitCode::usage, error.what());
    return code(ExitCode::usage);
  } catch (const std::exception& error) {
    // Other ranks may be waiting for this one: nothing but the end of the job gets them out.
    log::set_level(log::Level::error);
    const bool is_of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                              dynamic_cast<const OutOfMemory*>(&error) != nullptr;
    const bool is_of_files = dynamic_cast<const IoError*>(&error) != nullptr;
    const ExitCode ended = is_of_files ? ExitCode::not_writable : ExitCode::internal;
    const std::string reason = std::string(is_of_files ? "" : "internal error: ") + error.what() +
                               (is_of_memory ? memory_limit_hint() : "");
    log::error(reason);
    early.write(ended, reason);
    release_folder_locks();
    watchdog.note_end(code(ended));
    MpiEnvironment::abort(code(ended));
  }
}

/// Calls it in a thread whose stack has 1 MiB, whatever the limit is; not where there is no room.
void with_a_usual_stack(std::function<void()> work) {
  constexpr std::size_t stack_bytes = std::size_t{1} << 20;
  pthread_attr_t attributes;
  pthread_t thread{};
  if (pthread_attr_init(&attributes) != 0) return;
  const auto run_it = [](void* given) -> void* {
    (*static_cast<std::function<void()>*>(given))();
    return nullptr;
  };
  if (pthread_attr_setstacksize(&attributes, stack_bytes) == 0 &&
      pthread_create(&thread, &attributes, run_it, &work) == 0)
    pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

std::optional<int> refuse_low_limits(int argc, char** argv) {
  const std::string limit = low_limit();
  if (limit.empty()) return std::nullopt;
  report_problem(limit);
  if (is_first_process())
    with_a_usual_stack([&] {
      const JobOptions options = guessed_options(argc, argv);
      write_early_end(options, ExitCode::no_device, limit, is_place_known(options));
    });
  return code(ExitCode::no_device);
}

int run_program(int argc, char** argv, const std::string& engine_refusal) {
  // A file that has reached the limit on its size is a disk that is full: the write says so.
  std::signal(SIGXFSZ, SIG_IGN);
  // Whoever read what it says has gone: the job and its files go on.
  std::signal(SIGPIPE, SIG_IGN);
  Watchdog watchdog;
  const int exit_code = run(argc, argv, engine_refusal, watchdog);
  watchdog.note_end(exit_code);
  return exit_code;
}

}  // namespace dstune
