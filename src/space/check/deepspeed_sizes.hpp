#pragma once
/// The batch rule as DeepSpeed's config computes it, of whatever stands in the file. Local.

#include <optional>
#include <string>

#include "dstune/base/json.hpp"
#include "dstune/core/deepspeed_version.hpp"

namespace dstune {

/// Returns what DeepSpeed refuses of the three batch sizes on `ranks` ranks (DeepSpeedConfig:
/// _set_batch_related_parameters, _batch_assertion); empty: nothing. "auto" goes with the others.
/// Python's numbers: true is 1, and 4.0 divides like 4. A size that is no number is the reader's.
[[nodiscard]] std::string refusal_of_sizes(const json::Value& config, int ranks, Version release);

/// The same of a section `elasticity` that is on (deepspeed/elasticity, up to 0.19.7), which
/// decides the batch sizes. Nothing: there is no such section, or it is off.
[[nodiscard]] std::optional<std::string> refusal_of_elasticity(const json::Value& config,
                                                               std::optional<int> ranks,
                                                               Version release);

}  // namespace dstune
