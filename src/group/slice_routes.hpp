#pragma once

#include <vector>

#include "dstune/group/process_group.hpp"

namespace dstune {

/// How one rank gets every rank's slice. A slice crosses to another node once: one rank there
/// passes it on to the others, each rank for as many slices. By index in a range of ranks.
struct SliceRoutes {
  std::vector<int> from;    ///< who hands over each slice; the rank itself for its own
  std::vector<int> to;      ///< who takes this rank's slice from it
  std::vector<int> passed;  ///< the slices that this rank passes on
  std::vector<int> mates;   ///< who takes those: the others on its node
};

/// From each rank to each other. Local.
[[nodiscard]] SliceRoutes direct_routes(int count, int own_index);
/// `node_of_rank` is by rank in the group. Local.
[[nodiscard]] SliceRoutes routes_by_node(const std::vector<int>& node_of_rank,
                                         const RankRange& ranks, int own_index);

}  // namespace dstune
