#pragma once
/// A timeline in as many columns as a picture has. Local.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "dstune/core/memory_timeline.hpp"

namespace dstune {

[[nodiscard]] inline std::int64_t total_bytes(const MemoryTimeline::Instant& instant) {
  return std::accumulate(instant.begin(), instant.end(), std::int64_t{0});
}

/// The fullest of the instants [first, end), at least one.
[[nodiscard]] inline const MemoryTimeline::Instant& fullest_instant(
    const MemoryTimeline::Memory& memory, std::size_t first, std::size_t end) {
  const auto begin = memory.instants.begin();
  return *std::max_element(
      begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(end),
      [](const auto& left, const auto& right) { return total_bytes(left) < total_bytes(right); });
}

/// Instants [first, end) cut into `count` stretches of about the same length, or into as many as
/// there are: where each begins, and `end`.
[[nodiscard]] inline std::vector<std::size_t> stretches(std::size_t first, std::size_t end,
                                                        std::size_t count) {
  const std::size_t length = end - first;
  count = std::clamp<std::size_t>(count, 1, length);
  std::vector<std::size_t> begins;
  for (std::size_t index = 0; index <= count; ++index)
    begins.push_back(first + index * length / count);
  return begins;
}

/// Where the part after this one begins.
[[nodiscard]] inline std::size_t end_of_part(const MemoryTimeline& timeline, std::size_t part) {
  return part + 1 < timeline.parts.size() ? timeline.parts[part + 1].first_instant
                                          : timeline.memories.front().instants.size();
}

}  // namespace dstune
