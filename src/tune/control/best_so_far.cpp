#include "control/best_so_far.hpp"

namespace dstune {

std::optional<BestSoFar> best_so_far(const Scoreboard& scoreboard) {
  const std::optional<std::size_t> member = scoreboard.best();
  const auto value = member ? scoreboard.finite_value(*member) : std::nullopt;
  if (!value) return std::nullopt;
  const Experiment& experiment = scoreboard.row(*member).planned.experiment;
  const std::optional<std::size_t> baseline = scoreboard.setup().baseline;
  BestSoFar best{.name = experiment.name,
                 .num_ranks = experiment.shape.size(),
                 .value = *value,
                 .metric = scoreboard.metric(),
                 .is_expected = scoreboard.calibration().has_value(),
                 .is_baseline = member == baseline};
  if (const auto beside = baseline ? scoreboard.finite_value(*baseline) : std::nullopt)
    best.gain = is_minimised(best.metric) ? *beside / *value : *value / *beside;
  return best;
}

}  // namespace dstune
