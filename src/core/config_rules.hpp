#pragma once
/// What DeepSpeed 0.19.6 refuses in combination, and what follows from several keys together.

#include "dstune/core/knobs.hpp"

namespace dstune {

/// Adds a problem for each rule that the config's values break; types have been checked.
void check_rules(const json::Node& root, const TrainingConfig& config, json::Problems& problems);
/// Decides the optimizer's kind and default weight decay from type, adam_w_mode and torch_adam.
void decide_optimizer(const json::Node& root, TrainingConfig& config, json::Problems& problems);

}  // namespace dstune
