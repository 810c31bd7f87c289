#pragma once
/// The launcher tells a rank these facts before MPI starts, in the environment. Local.

#include <functional>
#include <string>

namespace dstune {

struct Launch {
  int world_rank = 0;
  /// Names the job on this node, the same for its ranks here and different for any other job;
  /// empty: this process is alone, or nobody says.
  std::string key{};
  int ranks_here = 0;  ///< ranks of the job on this node; 0: nobody says
  /// The launcher lets the other ranks live where one has died.
  bool outlives_ranks = false;
};

/// Open MPI's, PMIx's (Slurm's, too) and Hydra's variables. `variable` looks one up.
[[nodiscard]] Launch find_launch(const std::function<const char*(const char*)>& variable);

}  // namespace dstune
