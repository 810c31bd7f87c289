#pragma once
/// What a rank's process holds beside the arenas of its experiments: code, MPI, the libraries that
/// compute, shared windows, the search itself; and of its GPU context, libraries, communicators.
/// From it follow what experiments will hold in all, and what is left of GPUs for their tensors.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/device/device.hpp"
#include "dstune/search/planner.hpp"
#include "start/rank_devices.hpp"

namespace dstune {

/// Resident bytes of each rank's process, with the matrix products' library in use: it makes its
/// tables at the first one. Collective over the world.
std::vector<std::int64_t> resident_before_experiments(const Communicator& world, Device& device);

/// What the device's own memory has less for this process beside the arena of experiments; 0 where
/// nobody knows, or it has none of its own. Local.
std::int64_t gpu_bytes_beside_arena(Device& device);
/// Of each rank. Collective over the world.
std::vector<std::int64_t> gpu_bytes_before_experiments(const Communicator& world, Device& device);

/// Starts from what the processes held before the first experiment and follows what experiments
/// find: libraries keep tables of every shape they have met, the journal's index grows. Local.
class NonArenaMemory {
 public:
  /// By world rank. `has_staged`: whether the staging memory of groups is in it, or elsewhere.
  explicit NonArenaMemory(std::vector<std::int64_t> resident_bytes, bool has_staged = false);

  /// What processes hold after groups have run in them, by world rank; the others stay as they
  /// were.
  void start_again(const std::map<int, std::int64_t>& non_arena_bytes);
  /// Of the fullest of a group's ranks.
  [[nodiscard]] std::int64_t bytes(const std::vector<int>& world_ranks) const;
  /// What the fullest rank of an experiment's group was measured to hold.
  void observe(const std::vector<int>& world_ranks, std::int64_t bytes);

 private:
  [[nodiscard]] std::int64_t bytes_at_start(const std::vector<int>& world_ranks) const;

  std::vector<std::int64_t> resident_bytes_;
  bool has_staged_;
  std::map<std::size_t, std::int64_t> growth_bytes_;  ///< since then, by group size
};

/// Predicts what processes and GPUs hold in an experiment: its arenas, as they are planned, and
/// what is beside them. Local.
class ProcessMemoryPredictor {
 public:
  /// `gpus`: nothing where GPUs are not used, or nobody knows what they hold.
  ProcessMemoryPredictor(NonArenaMemory processes, std::optional<NonArenaMemory> gpus,
                         bool devices_have_own_memory)
      : processes_(std::move(processes)),
        gpus_(std::move(gpus)),
        devices_have_own_memory_(devices_have_own_memory) {}

  /// As NonArenaMemory's, of processes and of GPUs.
  void start_again(const std::map<int, std::int64_t>& non_arena_bytes,
                   const std::map<int, std::int64_t>& gpu_non_arena_bytes);
  /// By what was known before this experiment; learns from it for the next. What is not planned is
  /// not predicted.
  void predict(Record& record);

 private:
  NonArenaMemory processes_;
  std::optional<NonArenaMemory> gpus_;
  bool devices_have_own_memory_;
};

/// What plans may take of the GPUs once libraries and communicators have taken theirs, which the
/// limit that they were made for could only guess. The least of the ranks that told: what was free
/// of a GPU at the start, less what it has lost since then. `before_bytes`, `after_bytes`: what it
/// had lost beside the arena, by world rank. Nothing where a rank shares its GPU, since nobody can
/// tell who took what then. Local.
std::optional<std::int64_t> free_gpu_memory(const std::vector<RankDevice>& devices,
                                            const std::vector<std::int64_t>& before_bytes,
                                            const std::map<int, std::int64_t>& after_bytes);

/// Makes planned members infeasible that need more of the device than that, unless they have run:
/// those are given. Local.
std::vector<std::size_t> drop_what_does_not_fit(PlannedSpace& space, std::int64_t free_memory_bytes,
                                                const std::function<bool(std::size_t)>& has_run);

}  // namespace dstune
