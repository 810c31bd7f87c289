#pragma once
/// Objections to a job by the facts of a rank's GPU, and what to do. Knows no MPI. Local.

#include <string>
#include <vector>

#include "check/rank_report.hpp"

namespace dstune {

/// Returns why a job could not run there, or not be trusted. `all` are the job's reports, the
/// rank's among them. The others show whether a GPU is shared.
[[nodiscard]] std::vector<std::string> failures_of_gpu(const RankReport& report,
                                                       const std::vector<RankReport>& all);
/// Other things that are worth a look.
[[nodiscard]] std::vector<std::string> notes_of_gpu(const RankReport& report,
                                                    const std::vector<RankReport>& all);
/// Reasons that lowered its GPU's clock behind the products; "" where nothing did, or nobody tells.
[[nodiscard]] std::string throttled_by(const RankReport& report);
/// "12.4" of 12040
[[nodiscard]] std::string cuda_version_text(int version);

}  // namespace dstune
