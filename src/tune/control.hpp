#pragma once
/// Rank 0's search.

#include <cstdint>
#include <vector>

#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/tune/job.hpp"
#include "preparation.hpp"

namespace dstune {

/// Everything but the worker: measures the machine, runs the controller, prints the summary. Ends
/// with a QUIT to every rank. `resident_bytes`: of each rank's process before the first experiment.
/// Rank 0 only; talks to the workers through the mailbox.
void control(const JobOptions& options, Preparation& ready, const Topology& topology,
             const std::vector<RankDevice>& devices,
             const std::vector<std::int64_t>& resident_bytes, Mailbox& mailbox);

}  // namespace dstune
