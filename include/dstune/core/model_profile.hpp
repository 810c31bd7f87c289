#pragma once
/// The model figures that DeepSpeed's autotuner profiles before it tunes: here they are calculated.

#include <cstdint>
#include <optional>

#include "dstune/core/training_config.hpp"

namespace dstune {

/// The user's model in the user's training. Activations are those of one sample that forward keeps
/// for backward, without recompute; the loss with its logits is not among them.
struct ModelProfile {
  std::int64_t parameters = 0;  ///< LoRA's matrices count, too
  std::int64_t trainable_parameters = 0;
  std::int64_t sequence_length = 0;  ///< tokens of a sample
  Precision precision = Precision::fp32;
  /// Bytes; nothing where the target is the built-in step, whose plans have them.
  std::optional<std::int64_t> activation_bytes{};
  std::optional<std::int64_t> loss_bytes{};  ///< with the logits, at their fullest
  double flops_per_token = 0;  ///< forward and backward of a training of all parameters
};

}  // namespace dstune
