#pragma once
/// The parts of an Answer that are counted over all rows. Local.

#include <optional>
#include <vector>

#include "dstune/ranking/answer.hpp"

namespace dstune {

[[nodiscard]] std::vector<TuningSpace> spaces_of(const Scoreboard& board);
[[nodiscard]] std::vector<BestOfSize> best_of_sizes(const Scoreboard& board);
[[nodiscard]] std::vector<StatusCount> count_statuses(const std::vector<Row>& rows);
[[nodiscard]] std::vector<ReasonGroup> reason_groups(const std::vector<Row>& rows);
[[nodiscard]] std::vector<PredictedSpeed> predictions_of(const std::vector<Row>& rows);
[[nodiscard]] std::optional<double> rank_correlation_of(
    const std::vector<PredictedSpeed>& predictions);

}  // namespace dstune
