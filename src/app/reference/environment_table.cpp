#include "environment_table.hpp"

namespace dstune {

const std::vector<VariableRow>& environment_table() {
  static const std::vector<VariableRow> rows{
      {{"OMP_NUM_THREADS"},
       "Threads of a rank on CPUs. Without it a rank has the cores that its launcher or its cgroup "
       "leaves it, shared with the ranks that may use the same ones."},
      {{"SLURM_JOB_END_TIME", "SCR_END_TIME", "FLUX_JOB_EXPIRATION"},
       "The end of the batch job, in seconds since 1970. It is the time limit if `--time-limit` is "
       "not given."},
      {{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID"},
       "The batch job that holds the results folder. `dstune-mpi status` tells the command that "
       "stops it."},
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK",
        "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_CPU_BIND_TYPE"},
       "Set by `mpirun` and `srun`: this process's rank, and how many ranks there are. A plan, "
       "which "
       "starts no MPI, reads them."},
      {{"SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_NUM_NODES", "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_ON_NODE", "SLURM_HET_SIZE", "PBS_NODEFILE", "LSB_MCPU_HOSTS", "FLUX_JOB_NNODES",
        "FLUX_JOB_SIZE"},
       "The nodes, cores and GPUs of the batch job. They are compared with the ranks that were "
       "started, and a difference is a warning."},
      {{"VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE",
        "HOME"},
       "They say which Python is the user's. An answer is for its DeepSpeed, and its packages may "
       "have the libraries of GPUs."},
      {{"LOADEDMODULES", "CONDA_EXE"},
       "The modules that are loaded, and conda. `dstune-mpi batch` writes them into the script."},
      {{"HF_HOME", "XDG_CACHE_HOME"},
       "The place of the default file of `accelerate config`, for a training command that starts "
       "with `accelerate launch`."},
      {{"CUDA_VISIBLE_DEVICES"},
       "The GPUs that a rank may see. A job warns if each rank sees only one of several."},
      {{"CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "CUDNN_HOME", "NCCL_HOME"},
       "Folders with libraries of GPUs. They are searched after `LD_LIBRARY_PATH` and the user's "
       "Python."},
      {{"CUDA_MPS_PIPE_DIRECTORY"}, "The pipe of CUDA's multi-process service, for `check`."},
      {{"NCCL_MULTI_RANK_GPU_ENABLE"}, "With 1 NCCL may serve several ranks of one GPU."},
      {{"TORCH_EXTENSIONS_DIR"},
       "The folder in which PyTorch builds operators, if DeepSpeed's engine runs in the job."},
      {{"DSTUNE_CPU_KERNELS"},
       "The instruction set of the CPU kernels, in place of the best that the processor has."},
      {{"DSTUNE_CUDA_ALGORITHMS"},
       "Which algorithms of GPU libraries are taken: `fastest` (the default), `reproducible` or "
       "`first`."},
      {{"DSTUNE_CUDA_GRAPHS"},
       "With 0 micro-steps are launched one kernel at a time, not as CUDA graphs."},
      {{"NO_COLOR"}, "Messages have no colours, unless `--color` asks for them (no-color.org)."},
      {{"TERM"}, "With `dumb` no block of the terminal is rewritten."},
      {{"COLUMNS", "LINES"}, "The size of a terminal that does not tell it, as under `mpirun`."}};
  return rows;
}

const std::vector<ScriptVariable>& script_variable_table() {
  static const std::vector<ScriptVariable> rows{
      {"SPACE", "The space. `sbatch` and `flux batch` also take it behind the script's name.",
       "the space that the script was printed for"},
      {"OPTIONS", "More options of dstune-mpi, quoted as in a shell.", ""},
      {"DSTUNE_MPI", "The program.", "the program that printed the script"},
      {"LAUNCH",
       "The command that starts the ranks, quoted as in a shell. `$ranks` is their number.",
       "`mpirun`, in Flux `flux run`, or the words of `--launch`"},
      {"RESULTS_DIR", "The results folder.", "`autotuning_results`"},
      {"REQUEUE", "With `yes` a job that ran out of time is queued again.",
       "`yes` with `--requeue`, else `no`"},
      {"MAX_RESTARTS", "How often a job is queued again at most.",
       "the number of `--requeue`, else 10"},
      {"TIME_LIMIT",
       "The time limit of dstune-mpi, in place of the time that the batch system leaves.", ""},
      {"OMP_NUM_THREADS", "Threads of a rank on CPUs.",
       "the cores of a rank, as the batch system tells them or as the script asks for them"},
      {"TUNE_TIME", "With `--then-train`: the longest time for tuning.", "that of `--tune-time`"},
      {"TRAIN_ON_75",
       "With `--then-train`: with `yes` the best answer so far is trained, too, if time ran out.",
       "`no`"},
      {"TRAIN_LAUNCH", "With `--then-train`: words before the command of your training.", ""}};
  return rows;
}

}  // namespace dstune
