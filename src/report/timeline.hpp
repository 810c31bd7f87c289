#pragma once
/// A rank's memory over a step in as many stretches as a reader can see. Local.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

[[nodiscard]] std::int64_t total_bytes(const MemoryTimeline::Instant& instant);

/// The fullest of the instants [first, end), at least one: peaks show in whatever stands for them.
[[nodiscard]] const MemoryTimeline::Instant& fullest_instant(const MemoryTimeline::Memory& memory,
                                                             std::size_t first, std::size_t end);

/// Instants [first, end) cut into `count` stretches of about the same length, or into as many as
/// there are: where each begins, and `end`.
[[nodiscard]] std::vector<std::size_t> stretches(std::size_t first, std::size_t end,
                                                 std::size_t count);

/// The categories that hold anything.
[[nodiscard]] std::vector<std::size_t> used_categories(const MemoryTimeline& timeline);

}  // namespace dstune
