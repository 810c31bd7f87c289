#pragma once
/// Activations that autograd keeps in Hugging Face's modules, in bytes; docs/memory.md gives the
/// terms.

#include "dstune/plan/target_memory.hpp"

namespace dstune::plan {

/// Of one micro-batch.
struct TargetActivations {
  std::int64_t kept = 0;    ///< from forward to backward, but the loss's
  std::int64_t logits = 0;  ///< with their loss and its gradient: before backward of the layers
  std::int64_t layer = 0;   ///< beside `kept`, at the fullest instant of the last layer's backward
  std::int64_t first_layer = 0;  ///< in all, at the fullest instant of the first layer's backward
};

TargetActivations target_activations(const ModelSpec& model, const TrainingConfig& config,
                                     TargetAttention attention);

}  // namespace dstune::plan
