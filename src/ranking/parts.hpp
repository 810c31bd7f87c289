#pragma once
/// What the files of this layer share: the parts of an Answer that are counted over all rows, and
/// an interval's width. Local.

#include <optional>
#include <vector>

#include "dstune/ranking/answer.hpp"

namespace dstune {

/// Half of an interval's width, of the logarithm; infinite where it has no end.
[[nodiscard]] double half_width(const MetricValue& value);

[[nodiscard]] std::vector<TuningSpace> spaces_of(const Scoreboard& board);
[[nodiscard]] std::vector<BestOfSize> best_of_sizes(const Scoreboard& board);
[[nodiscard]] std::vector<StatusCount> count_statuses(const std::vector<Row>& rows);
[[nodiscard]] std::vector<ReasonGroup> reason_groups(const std::vector<Row>& rows);
[[nodiscard]] std::vector<PredictedSpeed> predictions_of(const std::vector<Row>& rows);
[[nodiscard]] std::optional<double> rank_correlation_of(
    const std::vector<PredictedSpeed>& predictions);

}  // namespace dstune
