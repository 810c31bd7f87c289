#pragma once
/// Memory that the user's own training (Hugging Face under DeepSpeed) needs for a configuration, by
/// formula: docs/memory.md states each term and its source. First form: within the accuracy of the
/// published formulas, not yet checked against a GPU.

#include <cstdint>
#include <map>
#include <string>

#include "dstune/core/job.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {

struct TargetMemory {
  std::int64_t total_bytes = 0;  ///< of one rank, at its fullest instant
  /// Of the total, adding up to it: parameters, gradients, optimizer, buckets, activations, logits,
  /// step (temporary copies of the update), framework (context, libraries, the allocator's
  /// rounding).
  std::map<std::string, std::int64_t> parts;
};

/// Local. All zero for TargetFramework::self.
TargetMemory target_memory(const ModelSpec& model, const TrainingConfig& config, int group_size,
                           const TargetSpec& target);

}  // namespace dstune
