#pragma once
/// States, gradients and buffers of DeepSpeed's ZeRO on the target's device, at each of the
/// instants that may be the fullest: docs/memory.md, "States and buffers", tensor by tensor.

#include "target/target_counts.hpp"

namespace dstune::plan {

/// Bytes of one rank at one of the instants that may be the fullest.
struct TargetInstant {
  std::int64_t gradients = 0, buckets = 0, step = 0;
};

/// Bytes of one rank; each instant beside what is always there.
struct TargetStates {
  std::int64_t parameters = 0, optimizer = 0;  ///< always there
  TargetInstant loss;                          ///< as backward begins
  TargetInstant layers;                        ///< in the backward of the last layer, the first run
  TargetInstant first_layer;                   ///< in that of the first, the last run
  TargetInstant reduction;                     ///< as backward ends
  TargetInstant update;
};

/// `group_size`: of the ranks that share one copy of the states.
[[nodiscard]] TargetStates target_states(const TargetCounts& counts, const TrainingConfig& config,
                                         int group_size);

}  // namespace dstune::plan
