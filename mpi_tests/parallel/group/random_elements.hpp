#pragma once

#include <random>

#include "group_fixture.hpp"

namespace dstune::test {

/// Numbers whose sums depend on the order: the bits tell whether it was the ranks'.
inline Elements random_elements(int rank, std::int64_t count, DType type) {
  std::mt19937 generator(static_cast<unsigned>(rank + 1));
  std::normal_distribution<float> normal(0, 100);
  Elements elements(type, count);
  for (std::int64_t i = 0; i < count; ++i) elements.set(i, normal(generator));
  return elements;
}

/// Every way to cut the group into parts of equal size that this rank can see.
inline std::vector<RankRange> parts_of(const ProcessGroup& group) {
  std::vector<RankRange> parts;
  for (int size = 1; size <= group.size(); ++size) {
    if (group.size() % size != 0) continue;
    parts.push_back(range_of(group.group_rank(), 1, size));
    parts.push_back(range_of(group.group_rank(), size, group.size() / size));
  }
  return parts;
}

}  // namespace dstune::test
