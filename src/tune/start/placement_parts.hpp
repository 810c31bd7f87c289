#pragma once
/// Parts of what is found of ranks' places. Local.

#include <string>
#include <vector>

#include "start/placement.hpp"

namespace dstune {

/// The ranks of one node, or of one machine.
struct NodeRanks {
  std::string host;
  std::vector<const RankPlace*> ranks;
};
[[nodiscard]] std::vector<NodeRanks> group_by(int RankPlace::*number,
                                              const std::vector<RankPlace>& places);

/// Nodes for which the same holds: "node1", or "3 of 8 nodes (node1 is one)".
class FoundOn {
 public:
  explicit FoundOn(std::size_t num_nodes) : num_nodes_(num_nodes) {}
  /// Tells whether it is the first, whose figures are told.
  bool add(const NodeRanks& node);
  [[nodiscard]] bool has_any() const { return count_ > 0; }
  [[nodiscard]] std::string text() const;

 private:
  std::size_t num_nodes_;
  std::size_t count_ = 0;
  std::string first_;
};

/// How to start so many ranks on each of so many nodes.
[[nodiscard]] std::string ranks_hint(const LaunchFacts& facts, int nodes, int ranks_a_node);

/// The findings of GPUs, in the order of PlacementKind. `nodes`: all of the job, by node.
void find_hidden_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                      std::vector<PlacementFinding>& found);
void find_missing_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                       std::vector<PlacementFinding>& found);
void find_shared_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                      std::vector<PlacementFinding>& found);
void find_idle_gpus(const std::vector<NodeRanks>& nodes, const LaunchFacts& facts,
                    std::vector<PlacementFinding>& found);
/// The GPUs that the ranks of a node see, all of them.
[[nodiscard]] std::size_t count_seen_gpus(const NodeRanks& node);

/// The findings of cores.
void find_bound_cores(const std::vector<NodeRanks>& machines, const LaunchFacts& facts,
                      std::vector<PlacementFinding>& found);
void find_shared_nodes(const std::vector<NodeRanks>& machines, const LaunchFacts& facts,
                       std::vector<PlacementFinding>& found);

}  // namespace dstune
