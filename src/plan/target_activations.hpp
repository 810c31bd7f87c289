#pragma once
/// Activations that autograd keeps in Hugging Face's modules, in bytes; docs/memory.md gives the
/// terms.

#include "dstune/plan/target_memory.hpp"

namespace dstune::plan {

struct TargetActivations {
  std::int64_t activations = 0;  ///< at the beginning of backward, its working set included
  std::int64_t logits = 0;       ///< with their loss and its gradient
};

/// Of one micro-batch.
TargetActivations target_activations(const ModelSpec& model, const TrainingConfig& config,
                                     TargetAttention attention);

}  // namespace dstune::plan
