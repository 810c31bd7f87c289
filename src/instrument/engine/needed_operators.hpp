#pragma once
/// Operators of DeepSpeed that are not built: known before the first experiment, and said once.

#include "dstune/instrument/engine/engine.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune::engine {

/// Looks before anything runs at the operators of DeepSpeed that members need. Those whose
/// operators are not built are pruned, with that reason. Throws InputError where all are, with the
/// commands that build them. Rank 0's. Local.
void prune_for_operators(const JobSpec& job, PlannedSpace& space, Engine& engine);

}  // namespace dstune::engine
