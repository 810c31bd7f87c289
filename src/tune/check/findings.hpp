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

}  // namespace dstune
