#pragma once
/// Ranks and hosts that stand out in a job. Knows no MPI.

#include <string>
#include <vector>

#include "check/rank_report.hpp"

namespace dstune {

struct Findings {
  std::vector<std::string> failures;  ///< what does not work
  std::vector<std::string> slow;      ///< ranks and nodes that are slower than their like
  std::vector<std::string> notes;     ///< what else is worth a look
};

/// `missing`: ranks that did not answer, with their hosts in words. A rank is compared with those
/// of an equal device and number of threads, a node with nodes of as many ranks. Local.
Findings findings_of(const std::vector<RankReport>& reports,
                     const std::vector<std::string>& missing);

/// The most that a device can do, as its vendor says: bf16 products (fp16 before Ampere, dense) in
/// operations a second, memory in bytes a second.
struct DevicePeaks {
  double flops = 0, memory_bytes = 0;
};
/// Nothing for what is not known. Local.
std::optional<DevicePeaks> peaks_of(const std::string& device);

}  // namespace dstune
