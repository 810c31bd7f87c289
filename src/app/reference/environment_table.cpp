#include "environment_table.hpp"

namespace dstune {

const std::vector<VariableRow>& environment_table() {
  static const std::vector<VariableRow> rows{
      {{"OMP_NUM_THREADS"},
       "Threads of a rank on CPUs. Without it a rank has the cores that its launcher or its cgroup "
       "leaves it, shared with the ranks that may use the same ones."},
      {{"SLURM_JOB_END_TIME", "SCR_END_TIME", "FLUX_JOB_EXPIRATION"},
       "The end of the batch job, in seconds since 1970: the time limit, where `--time-limit` is "
       "not given."},
      {{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID"},
       "The batch job that holds the results folder. `dstune-mpi status` tells the command that "
       "stops it."},
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_RANK",
        "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_CPU_BIND_TYPE"},
       "Set by `mpirun` and `srun`: this process's rank, and how many there are. Plans, which "
       "start no MPI, take them."},
      {{"SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_NUM_NODES", "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_ON_NODE", "SLURM_HET_SIZE", "PBS_NODEFILE", "LSB_MCPU_HOSTS", "FLUX_JOB_NNODES",
        "FLUX_JOB_SIZE"},
       "The nodes, cores and GPUs of the batch job. They are compared with the ranks that were "
       "started, and a difference is a warning."},
      {{"VIRTUAL_ENV", "CONDA_PREFIX", "PATH", "PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE",
        "HOME"},
       "The user's Python: its DeepSpeed is the one that an answer is for, and its packages have "
       "the libraries of GPUs."},
      {{"LOADEDMODULES", "CONDA_EXE"},
       "The modules that are loaded, and conda: `dstune-mpi batch` writes them into the script."},
      {{"HF_HOME", "XDG_CACHE_HOME"},
       "The place of the default file of `accelerate config`, for a training command that starts "
       "with `accelerate launch`."},
      {{"CUDA_VISIBLE_DEVICES"},
       "The GPUs that a rank may see. A job warns where each rank sees one of several."},
      {{"CUDA_HOME", "CUDA_PATH", "CUDNN_ROOT", "CUDNN_HOME", "NCCL_HOME"},
       "Folders in which libraries of GPUs are looked for, behind those of `LD_LIBRARY_PATH` and "
       "of the user's Python."},
      {{"CUDA_MPS_PIPE_DIRECTORY"}, "The pipe of CUDA's multi-process service, for `check`."},
      {{"NCCL_MULTI_RANK_GPU_ENABLE"}, "With 1 NCCL may serve several ranks of one GPU."},
      {{"TORCH_EXTENSIONS_DIR"},
       "The folder in which PyTorch builds operators, where DeepSpeed's engine runs in the job."},
      {{"DSTUNE_CPU_KERNELS"},
       "The CPU kernels of one instruction set, in place of the best that the processor has."},
      {{"DSTUNE_CUDA_ALGORITHMS"},
       "`fastest` (the default), `reproducible` or `first`: which algorithms of GPU libraries are "
       "taken."},
      {{"DSTUNE_CUDA_GRAPHS"},
       "With 0 micro-steps are launched one kernel at a time, not as CUDA graphs."},
      {{"NO_COLOR"}, "Messages have no colours, unless `--color` asks for them (no-color.org)."},
      {{"TERM"}, "`dumb`: no block of the terminal is rewritten."},
      {{"COLUMNS", "LINES"}, "The size of a terminal that does not tell it, as under `mpirun`."}};
  return rows;
}

}  // namespace dstune
