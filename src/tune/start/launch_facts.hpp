#pragma once
/// Facts that the launcher and the batch system tell in the environment of rank 0. Starts no
/// process. Local.

#include <functional>
#include <string>

namespace dstune {

/// Looks a variable up; null where it is not set.
using LookUp = std::function<const char*(const char*)>;
/// In the environment of this process.
const char* own_variable(const char* name);

enum class Launcher { unknown, open_mpi, hydra, srun };
enum class BatchSystem { none, slurm, pbs, lsf, flux };

/// A number is 0 where nobody says it.
struct LaunchFacts {
  Launcher launcher = Launcher::unknown;
  BatchSystem batch = BatchSystem::none;
  int nodes = 0;        ///< of the job
  int tasks = 0;        ///< ranks that the job was asked for
  int step_tasks = 0;   ///< processes that srun started for this program
  int components = 0;   ///< of a heterogeneous job of Slurm
  int cpus_a_node = 0;  ///< the most that the job has on a node, in the batch system's counting
  bool asks_one_thread = false;  ///< OMP_NUM_THREADS is 1
  /// The reason why the program can use no GPU here; asked where none answers.
  std::string gpu_refusal{};
};

/// The batch system whose job this is; the innermost where one runs inside another.
[[nodiscard]] BatchSystem find_batch_system(const LookUp& variable);
/// "Slurm", "PBS", "LSF", "Flux"; "" for none.
[[nodiscard]] const char* to_text(BatchSystem batch);

/// PBS names its nodes in a file, which is read.
[[nodiscard]] LaunchFacts find_launch_facts(const LookUp& variable);

/// The GPUs that Slurm gives the caller's node: SLURM_GPUS_ON_NODE, else SLURM_GPUS_PER_NODE, in
/// which a kind may stand before the number ("a100:4").
[[nodiscard]] int given_gpus(const LookUp& variable);

/// How many GPUs CUDA_VISIBLE_DEVICES names; -1 where it is not set, or names parts of GPUs, of
/// which CUDA shows one alone. "" and words that are no GPU name none.
[[nodiscard]] int named_gpus(const char* cuda_visible_devices);

}  // namespace dstune
