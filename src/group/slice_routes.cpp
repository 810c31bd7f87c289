#include "slice_routes.hpp"

#include <cstddef>
#include <map>

namespace dstune {

SliceRoutes direct_routes(int count, int own_index) {
  SliceRoutes routes;
  for (int index = 0; index < count; ++index) {
    routes.from.push_back(index);
    if (index != own_index) routes.to.push_back(index);
  }
  return routes;
}

SliceRoutes routes_by_node(const std::vector<int>& node_of_rank, const RankRange& ranks,
                           int own_index) {
  std::map<int, std::vector<int>> members;
  std::vector<std::size_t> place(static_cast<std::size_t>(ranks.count));  // within its node
  const auto node_of = [&](int index) {
    return node_of_rank[static_cast<std::size_t>(ranks.rank(index))];
  };
  for (int index = 0; index < ranks.count; ++index) {
    std::vector<int>& there = members[node_of(index)];
    place[static_cast<std::size_t>(index)] = there.size();
    there.push_back(index);
  }
  // Who brings the slice of `index` to those of another node.
  const auto bringer = [&](int index, const std::vector<int>& there) {
    return there[place[static_cast<std::size_t>(index)] % there.size()];
  };

  SliceRoutes routes;
  const std::vector<int>& mine = members.at(node_of(own_index));
  for (int index = 0; index < ranks.count; ++index) {
    const bool is_near = node_of(index) == node_of(own_index);
    routes.from.push_back(is_near || bringer(index, mine) == own_index ? index
                                                                       : bringer(index, mine));
    if (!is_near && bringer(index, mine) == own_index) routes.passed.push_back(index);
  }
  for (const auto& [node, there] : members) {
    if (node == node_of(own_index)) {
      for (const int index : there)
        if (index != own_index) routes.mates.push_back(index);
      routes.to.insert(routes.to.end(), routes.mates.begin(), routes.mates.end());
    } else {
      routes.to.push_back(bringer(own_index, there));
    }
  }
  return routes;
}

}  // namespace dstune
