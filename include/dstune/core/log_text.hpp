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
    "the CUDA backend of this release was tested on one H100 and one H200, not on several GPUs "
    "(docs/gpu.md)";
inline constexpr const char* wrong_omp_threads =
    "OMP_NUM_THREADS is no number of threads, but \"{}\"; ranks have {}";
inline constexpr const char* no_thread_multiple =
    "MPI grants less than MPI_THREAD_MULTIPLE, so rank 0 only coordinates";
inline constexpr const char* no_time_limit = "no time limit is known (--time-limit sets one)";
inline constexpr const char* no_time_limit_of_batch =
    "{} does not tell this job its time limit in the environment, so it may end without warning: "
    "give --time-limit, or start it by a script that dstune-mpi batch writes, which asks {}";
inline constexpr const char* time_limit = "time limit {} from {}; {} of it for a clean end";
inline constexpr const char* stopping_early = "stopping early: {}";
inline constexpr const char* retry_failed =
    "--retry-failed: {} experiments that failed before run again";
inline constexpr const char* other_results =
    "{} has {} of another model, machine, number of ranks or space. None is used again, and this "
    "job's answer replaces theirs. --results-dir names another folder";
inline constexpr const char* other_races =
    "runs that lost a race by another metric do not count for {}: the search may run them again";
inline constexpr const char* nodes_not_watched = "other nodes are not watched any more: {}";
inline constexpr const char* energy_measured = "energy is measured: {}";
inline constexpr const char* energy_not_measured = "energy is {}";
inline constexpr const char* collectives = "collectives: {}";
inline constexpr const char* longer_warm_up =
    "the least number of warm-up steps is {}, not {} (autotuning.start_profile_step). In the first "
    "steps code is loaded; on GPUs libraries choose their algorithms, and graphs are recorded";

// Places of ranks: findings, and the hints that end them.

inline constexpr const char* separate_jobs =
    "srun started {} processes, and MPI makes a job of its own of each. {}";
inline constexpr const char* hidden_gpus =
    "each rank sees one GPU of several on {}: NCCL may lose peer access over NVLink, and "
    "collectives take longer than in a training that sees all. {}";
inline constexpr const char* missing_gpus =
    "ranks see {} of the {} GPUs that {} names on {}{}. Look at nvidia-smi there; a container "
    "needs --nv (Apptainer) or --gpus all (Docker)";
inline constexpr const char* shared_gpus =
    "{} ranks share {} on {}: they take turns, so times say nothing of a GPU for each. {}";
inline constexpr const char* idle_gpus = "no rank computes on {} of the job's {} on {}. {}";
inline constexpr const char* one_core =
    "ranks have one core each on {}, where the job has {} cores for {}: {}. {}";
inline constexpr const char* same_core =
    "ranks take turns on the same cores on {}: {} of the job's {} cores there are used. {}";
inline constexpr const char* part_of_nodes =
    "the job has {} of {} cores on {}: other jobs there may disturb what is measured. {}";
inline constexpr const char* busy_nodes =
    "others compute on {} already, in about {:.0f} threads: they disturb what is measured. {}";
inline constexpr const char* unlike_nodes =
    "nodes differ in {}: a group is as fast as its slowest node, and takes as many ranks on each. "
    "{}";
inline constexpr const char* idle_nodes =
    "{} on {} of the job's {} nodes: the others are idle, and no group can take them. {}";
inline constexpr const char* idle_tasks = "{} here, and {} has {} tasks for this job. {}";

inline constexpr const char* with_pmix =
    "Write srun --mpi=pmix (srun --mpi=list names what there is), or mpirun";
inline constexpr const char* gpus_by_node =
    "Write --gpus-per-node={} and srun --gpu-bind=none instead of --gpus-per-task";
inline constexpr const char* gpus_all_visible =
    "Let each rank see all: leave CUDA_VISIBLE_DEVICES as the batch system sets it";
inline constexpr const char* ranks_by_srun = "Write srun --nodes={} --ntasks-per-node={}";
inline constexpr const char* ranks_by_open_mpi = "Write mpirun -np {} --map-by ppr:{}:node";
inline constexpr const char* ranks_by_hydra = "Write mpiexec -np {} -ppn {}";
inline constexpr const char* ranks_of_job = "Start {} ranks, {} on each node";
inline constexpr const char* cores_by_srun =
    "Write srun --cpus-per-task={} --cpu-bind=cores. srun takes nothing of sbatch's "
    "--cpus-per-task since Slurm 22.05, unless SRUN_CPUS_PER_TASK says it";
inline constexpr const char* cores_by_open_mpi = "Write mpirun --map-by slot:PE={} --bind-to core";
inline constexpr const char* cores_by_hydra = "Write mpiexec -bind-to core:{}";
inline constexpr const char* cores_of_rank = "Bind each rank to {} cores";
inline constexpr const char* no_binding =
    "Bind ranks to no core: mpirun --bind-to none, srun --cpu-bind=none";
inline constexpr const char* whole_nodes = "Ask for whole nodes: {}";
inline constexpr const char* one_kind_of_node = "Keep to nodes of one kind: {}";

// The space and its plan.

inline constexpr const char* assumed = "assumed: {}";
inline constexpr const char* search_of_sizes =
    "{0} is one number, {1}, from which on larger sizes are searched: {2} members become {3}; "
    "write "
    "[{1}] for this size alone";
inline constexpr const char* large_space =
    "the space has {} members. All are checked before the first runs, and at most {} of them are "
    "tried; dstune-mpi plan counts them";
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
inline constexpr const char* host_measured =
    "an interpreter's work takes {:.2f} times as long here as on the reference machine; "
    "costs of the host are multiplied by {:.2f}";
inline constexpr const char* link_measured =
    "Links between nodes carry {:.3g} MB/s each way. gloo puts other bytes on them than the step "
    "here: that is in the expected times";
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
inline constexpr const char* operator_does_not_load =
    "DeepSpeed's operator {} is built, but does not load: {}";
inline constexpr const char* other_baseline = "{} can not run, so the baseline is {}";

// Experiments.

inline constexpr const char* of_experiment = "{}: {}";
inline constexpr const char* after_failure = "after a failure: {}";
inline constexpr const char* members_do_not_fit = "{} do not fit: the GPU has {} left for tensors";
inline constexpr const char* finalist_is_rebuilt =
    "{}: {}. It is built anew for each of its runs, without other finalists in memory";
inline constexpr const char* finalists_are_rebuilt =
    "memory does not hold all finalists at once; built anew for each run: {}";
inline constexpr const char* finalists_of_others_are_rebuilt =
    "finalists are built anew for each run: only the built-in step can stay built";
inline constexpr const char* idle_rank_lost = "lost rank {} while it was idle: not used again";
inline constexpr const char* ranks_not_used_again = "{}: {}, not used again";
inline constexpr const char* ranks_left_with_device =
    "{}: {}, not used again; what is held of a device is left to the end of its process";
inline constexpr const char* page_not_kept =
    "report.html and status.json are not kept up to date: {}";

}  // namespace dstune::log_text
