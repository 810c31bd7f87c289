#pragma once
/// Which ranks of a group share what: MiCS keeps a copy of all states in each block of
/// mics_shard_size ranks, hpZ a second partition of the parameters in each block of
/// zero_hpz_partition_size. Blocks are of consecutive ranks, as in DeepSpeed
/// (runtime/zero/mics_utils.py, utils/groups.py).

#include "dstune/base/rank_range.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune::plan {

/// Seen from one rank.
struct Partition {
  int size = 1;           ///< ranks that share one copy of the states
  int rank = 0;           ///< the own place among them
  int replicas = 1;       ///< copies
  RankRange shards = {};  ///< the ranks that share a copy; all where there is one
  RankRange across = {};  ///< those that hold the same shards, where there are several copies

  int secondary_size = 0;  ///< ranks that share a second copy of the parameters; 0: there is none
  int secondary_rank = 0;
  RankRange secondary = {};

  /// Gathers in two levels; 0: in one. Ranks of a node that take part, those with the same place on
  /// each node, and those of the own node.
  int ranks_of_node = 0;
  RankRange across_nodes = {}, node = {};
};

/// Below stage 3, and in a group of one, all ranks share one copy and nothing else.
[[nodiscard]] Partition partition_of(const TrainingConfig& config, int group_size, int group_rank);

}  // namespace dstune::plan
