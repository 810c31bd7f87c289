#include <algorithm>

#include "dstune/base/error.hpp"
#include "dstune/group/group_table.hpp"

namespace dstune {

std::vector<std::vector<int>> aligned_groups(const std::vector<std::vector<int>>& ranks_of_node,
                                             int num_gpus, int num_nodes) {
  require(num_gpus >= 1 && num_nodes >= 1, "a group has at least one rank on at least one node");
  const auto per_node = static_cast<std::size_t>(num_gpus);
  const auto run = static_cast<std::size_t>(num_nodes);
  std::vector<std::vector<int>> groups;
  for (std::size_t first_node = 0; first_node + run <= ranks_of_node.size(); first_node += run) {
    std::size_t smallest = ranks_of_node[first_node].size();
    for (std::size_t i = 1; i < run; ++i) {
      smallest = std::min(smallest, ranks_of_node[first_node + i].size());
    }
    for (std::size_t first = 0; first + per_node <= smallest; first += per_node) {
      std::vector<int> group;
      for (std::size_t i = 0; i < run; ++i) {
        const auto begin =
            ranks_of_node[first_node + i].begin() + static_cast<std::ptrdiff_t>(first);
        group.insert(group.end(), begin, begin + num_gpus);
      }
      std::sort(group.begin(), group.end());
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace dstune
