#pragma once
/// The text and the JSON that `dstune-mpi check` prints.

#include <string>
#include <vector>

#include "check/findings.hpp"
#include "check/rank_report.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"

namespace dstune {

/// The reports by rank. Local.
std::string check_text(const std::vector<RankReport>& reports, const Findings& findings);
json::Value check_json(const std::vector<RankReport>& reports, const Findings& findings,
                       ExitCode code);

}  // namespace dstune
