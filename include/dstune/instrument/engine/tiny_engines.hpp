#pragma once
/// The few configurations of a tiny model of ours by which a job measures what DeepSpeed's work
/// costs on its machine. Local.

#include <vector>

#include "dstune/core/deepspeed_version.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {

struct TinyEngine {
  ModelSpec model;
  Experiment experiment;
  Overheads overheads{};  ///< of its step
};

/// In the order in which they tell most: those of each ZeRO stage come first. They differ in what
/// the costs count. Without a second rank there is no network, and what differs in it alone is left
/// out.
[[nodiscard]] std::vector<TinyEngine> tiny_engines(GroupShape shape, Version deepspeed_version);

}  // namespace dstune
