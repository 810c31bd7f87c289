#pragma once
/// What a rank's process holds beside the arenas of its experiments: code, MPI, the libraries that
/// compute, shared windows, the search itself; and of its GPU context, libraries, communicators.

#include <cstdint>
#include <map>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/device/device.hpp"

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
class OutsideMemory {
 public:
  /// By world rank. `has_staged`: whether the staging memory of groups is in it, or elsewhere.
  explicit OutsideMemory(std::vector<std::int64_t> resident_bytes, bool has_staged = false);

  /// What processes hold after groups have run in them, by world rank; the others stay as they
  /// were.
  void start_again(const std::map<int, std::int64_t>& outside_bytes);
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

}  // namespace dstune
