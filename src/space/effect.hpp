#pragma once
/// What a configuration makes the step do, without what has no effect at its stage. Local.

#include <cstddef>

#include "dstune/core/experiment.hpp"

namespace dstune {

/// The configuration with every knob that does not act at its ZeRO stage at its default.
TrainingConfig effective_config(const TrainingConfig& config);

/// Equal for equal configurations and shapes.
std::size_t hash_of(const TrainingConfig& config, const GroupShape& shape);

}  // namespace dstune
