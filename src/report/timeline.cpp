#include "timeline.hpp"

#include <algorithm>
#include <numeric>

namespace dstune {

std::int64_t total_bytes(const MemoryTimeline::Instant& instant) {
  return std::accumulate(instant.begin(), instant.end(), std::int64_t{0});
}

const MemoryTimeline::Instant& fullest_instant(const MemoryTimeline::Memory& memory,
                                               std::size_t first, std::size_t end) {
  const auto begin = memory.instants.begin();
  return *std::max_element(
      begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(end),
      [](const auto& one, const auto& other) { return total_bytes(one) < total_bytes(other); });
}

std::vector<std::size_t> stretches(std::size_t first, std::size_t end, std::size_t count) {
  const std::size_t length = end - first;
  count = std::clamp<std::size_t>(count, 1, length);
  std::vector<std::size_t> begins;
  for (std::size_t index = 0; index <= count; ++index)
    begins.push_back(first + index * length / count);
  return begins;
}

std::vector<std::size_t> used_categories(const MemoryTimeline& timeline) {
  std::vector<std::size_t> used;
  for (std::size_t category = 0; category < timeline.categories.size(); ++category) {
    const auto holds_any = [&](const MemoryTimeline::Memory& memory) {
      return std::any_of(memory.instants.begin(), memory.instants.end(),
                         [&](const auto& instant) { return instant[category] > 0; });
    };
    if (std::any_of(timeline.memories.begin(), timeline.memories.end(), holds_any))
      used.push_back(category);
  }
  return used;
}

}  // namespace dstune
