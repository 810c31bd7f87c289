#pragma once
/// What DeepSpeed holds on the host of what is offloaded.

#include "dstune/plan/target_memory.hpp"
#include "target/target_counts.hpp"

namespace dstune::plan {

/// Bytes of one rank.
[[nodiscard]] std::int64_t target_host_bytes(const TargetCounts& counts,
                                             const TrainingConfig& config,
                                             const TargetSpec& target);

}  // namespace dstune::plan
