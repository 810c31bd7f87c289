#pragma once
/// The end of an optimizer step: stage 0's reduction, loss, overflow, clipping, the optimizer,
/// and the parameters of the other ranks.

#include "zero/gathering.hpp"

namespace dstune::plan {

/// One all-reduce of stage 0 is of whole parameters until they are more elements than this, a
/// constant in DeepSpeed.
inline constexpr std::int64_t stage0_chunk_elements = 500'000'000;

/// The segments after the micro-steps.
void emit_update(Emitter& emitter, const Layout& layout, const PersistentTensors& tensors,
                 const TrainingConfig& config, std::int64_t targets_per_sequence,
                 const Gathering* gathering);

}  // namespace dstune::plan
