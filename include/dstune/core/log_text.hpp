#pragma once
/// The texts of a job's log, each once; a place that logs formats one of them. Part by part in the
/// order of a job. scripts/cmake/check_messages.py holds them to plain words. Local.

namespace dstune::log_text {

// Opening: folders, the machine's ranks and devices, time.

inline constexpr const char* folder_taken_instead =
    "{} has files that are not dstune-mpi's ({}); {} is taken instead";
inline constexpr const char* idle_ranks = "{} of {} ranks train, on {} of {} host(s); {} stay idle";
inline constexpr const char* gpus_not_used = "GPUs are not used: {}";
inline constexpr const char* cuda_backend =
    "the CUDA backend of this release was tested on one H100, not on several GPUs or other ones "
    "(docs/gpu.md)";
inline constexpr const char* wrong_omp_threads =
    "OMP_NUM_THREADS is no number of threads, but \"{}\"; ranks have {}";
inline constexpr const char* no_thread_multiple =
    "MPI grants less than MPI_THREAD_MULTIPLE, so rank 0 only coordinates";
inline constexpr const char* no_time_limit = "no time limit is known (--time-limit sets one)";
inline constexpr const char* time_limit = "time limit {} from {}; {} of it for a clean end";
inline constexpr const char* stopping_early = "stopping early: {}";
inline constexpr const char* retry_failed =
    "--retry-failed: {} experiments that failed before run again";
inline constexpr const char* other_results =
    "{} has {} of another model, machine, number of ranks or space. None is used again, and this "
    "job's answer replaces theirs. --results-dir names another folder";
inline constexpr const char* nodes_not_watched = "other nodes are not watched any more: {}";
inline constexpr const char* energy_measured = "energy is measured: {}";
inline constexpr const char* energy_not_measured = "energy is {}";
inline constexpr const char* collectives = "collectives: {}";
inline constexpr const char* longer_warm_up =
    "the first {} steps of each experiment are warm-up, not {} (autotuning.start_profile_step). "
    "Libraries choose their algorithms in them, code is loaded, and graphs are recorded";

// The space and its plan.

inline constexpr const char* assumed = "assumed: {}";
inline constexpr const char* large_space =
    "the space has {} members. All are checked before the first runs, and at most {} of them are "
    "tried; --dry-run counts them";
inline constexpr const char* slow_bf16 =
    "{} has no units for products in bf16, which take as long as in fp32; it has some for fp16";
inline constexpr const char* plan_stopped_early =
    "stopped early at the time limit; this is what was planned until then";
inline constexpr const char* batch_of_one_rank =
    "the space does not say how many ranks train, so the batch job has one: --nodes and "
    "--gpus-per-node ask for more";
inline constexpr const char* import_skipped = "--import: {}";
inline constexpr const char* import_not_in_space =
    "--import: {} ran a configuration that is not in the space";

// Measuring the machine.

inline constexpr const char* disk_not_measured = "the disk's speed is not measured: {}";
inline constexpr const char* profiling_failed = "measuring the machine: {}";
inline constexpr const char* profiling_cut_short = "measuring the machine was cut short";
inline constexpr const char* tiny_engines_begin =
    "tiny engines of DeepSpeed measure DeepSpeed's overhead here";
inline constexpr const char* tiny_engine_note = "measuring DeepSpeed's overhead: {}";
inline constexpr const char* tiny_engines_too_few =
    "DeepSpeed's overhead here is not known: {} tiny engines ran and {} are needed{}. The job uses "
    "the constants that come with the program";
inline constexpr const char* tiny_engine_failed = "at least one tiny engine failed: {}";
inline constexpr const char* tiny_engines_off =
    "DeepSpeed's overhead here is not known: times of {} tiny engines differ by {:.0f} % from "
    "their "
    "fit. Something else may keep the machine busy. The job uses the constants that come with the "
    "program";
inline constexpr const char* tiny_engines_end =
    "{} tiny engines measured DeepSpeed's overhead in {}, with an error of {:.1f} %";

// Python and DeepSpeed's engine.

inline constexpr const char* python_loads = "Python loads torch and DeepSpeed";
inline constexpr const char* python_says = "Python: {}";
inline constexpr const char* python_loaded = "Python: {}, after {}";
inline constexpr const char* operators_missing =
    "these operators of DeepSpeed are not built: {}. Configurations that need them fail; "
    "environment.json has the command that builds each";
inline constexpr const char* operators_left_out =
    "{} configurations are left out, since operators of DeepSpeed are {}";
inline constexpr const char* other_baseline = "{} can not run, so the baseline is {}";

// Experiments.

inline constexpr const char* of_experiment = "{}: {}";
inline constexpr const char* after_failure = "after a failure: {}";
inline constexpr const char* members_do_not_fit = "{} do not fit: the GPU has {} left for tensors";
inline constexpr const char* idle_rank_lost = "lost rank {} while it was idle: not used again";
inline constexpr const char* ranks_not_used_again = "{}: {}, not used again";
inline constexpr const char* ranks_left_with_device =
    "{}: {}, not used again; what is held of a device is left to the end of its process";
inline constexpr const char* page_not_kept =
    "report.html and status.json are not kept up to date: {}";

}  // namespace dstune::log_text
