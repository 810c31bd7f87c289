#pragma once
/// A timeline in as many columns as a picture has. Local.

#include <cstdint>
#include <vector>

#include "dstune/core/memory_timeline.hpp"

namespace dstune {

[[nodiscard]] std::int64_t total_bytes(const MemoryTimeline::Instant& instant);

/// The fullest of the instants [first, end), at least one.
[[nodiscard]] const MemoryTimeline::Instant& fullest_instant(const MemoryTimeline::Memory& memory,
                                                             std::size_t first, std::size_t end);

/// Instants [first, end) cut into `count` stretches of about the same length, or into as many as
/// there are: where each begins, and `end`.
[[nodiscard]] std::vector<std::size_t> stretches(std::size_t first, std::size_t end,
                                                 std::size_t count);

/// Where the part after this one begins.
[[nodiscard]] std::size_t end_of_part(const MemoryTimeline& timeline, std::size_t part);

}  // namespace dstune
