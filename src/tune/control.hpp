#pragma once
/// Rank 0's search.

#include <cstdint>
#include <vector>

#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/topology.hpp"
#include "dstune/tune/job.hpp"
#include "preparation.hpp"

namespace dstune {

/// What each rank's process holds before the first experiment, and its GPU; 0: not known.
struct BytesBefore {
  std::vector<std::int64_t> resident, gpu;
};

/// Everything but the worker: measures the machine, runs the controller, prints the summary. Ends
/// with a QUIT to every rank. Rank 0 only; talks to the workers through the mailbox.
void control(const JobOptions& options, Preparation& ready, const Topology& topology,
             const std::vector<RankDevice>& devices, const BytesBefore& bytes, Mailbox& mailbox);

}  // namespace dstune
