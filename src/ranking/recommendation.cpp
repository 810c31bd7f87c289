// What is recommended, and how likely it is the best.
#include <algorithm>
#include <cmath>
#include <random>

#include "dstune/ranking/answer.hpp"

namespace dstune {

namespace {

std::optional<double> joules_of(const Row& row) {
  if (!row.record) return std::nullopt;
  const Experiment& experiment = row.record->experiment;
  const std::int64_t batch = global_batch(experiment.config, experiment.shape.size());
  double sum = 0;
  int count = 0;
  const auto add = [&](const Measurement& measurement) {
    const auto joules = joules_per_sample(measurement, batch);
    sum += joules.value_or(0);
    count += joules ? 1 : 0;
  };
  add(row.record->measurement);
  for (const Repeat& repeat : row.repeats) add(repeat.measurement);
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::optional<CalibrationSummary> calibration_of(const Scoreboard& board) {
  if (!board.is_calibrated()) return std::nullopt;
  CalibrationSummary summary{*board.calibration(), board.setup().memory_offset_bytes};
  for (const UserRun& run : board.setup().user_runs) {
    const auto latency_us = board.first_value(run.row, Metric::latency);
    if (!latency_us) continue;
    const Row& row = board.row(run.row);
    const double measured_s = latency_us->value * 1e-6;
    summary.runs.push_back(
        {row.planned.experiment.name, run.path, run.step_s, measured_s,
         summary.fit.target_s(measured_s, row.planned.experiment.config.precision, row.overheads)});
  }
  return summary;
}

/// The best few, and what the user came with.
std::vector<ToVerify> to_verify(const Scoreboard& board) {
  constexpr std::size_t max_verified = 3;
  const std::optional<std::size_t>& own = board.setup().baseline_row;
  std::vector<ToVerify> runs;
  for (const std::size_t row : board.best_rows(max_verified))
    runs.push_back(
        {&board.row(row).planned.experiment, static_cast<int>(runs.size()) + 1, row == own});
  if (own && std::ranges::find(runs, true, &ToVerify::is_baseline) == runs.end())
    runs.push_back({&board.row(*own).planned.experiment, 0, true});
  return runs;
}

/// What is believed of a row: the logarithm of its value, larger is better.
struct Competitor {
  double mean = 0;
  double standard_error = 0;
  double degrees_of_freedom = 1;
};

constexpr double no_precision = 0.2;  ///< where an interval has no end

Competitor competitor(const Scoreboard& board, std::size_t row, const Spread& in_search,
                      const Spread& of_finals) {
  const MetricValue value = *board.ranked_value(row);
  Competitor result;
  result.mean = std::log(value.value) * (is_minimised(board.metric()) ? -1 : 1);
  const double half = std::min(no_precision, half_width(value));
  if (board.is_final(row)) {
    result.degrees_of_freedom = std::max(1.0, of_finals.degrees_of_freedom);
    result.standard_error = half / student_t(0.95, result.degrees_of_freedom);
  } else {
    result.degrees_of_freedom = in_search.degrees_of_freedom;
    result.standard_error = std::hypot(half / 2, in_search.deviation);
  }
  return result;
}

}  // namespace

Standing standing_of(const Scoreboard& board, std::size_t index) {
  const Row& row = board.row(index);
  return {&row,
          board.ranked_value(index),
          board.reported_value(index),
          verified_value(row, board.metric()),
          board.calibration() ? board.measured_value(index, board.metric()) : std::nullopt,
          board.target_time(index),
          joules_of(row)};
}

std::optional<Recommendation> recommendation_of(const Scoreboard& board) {
  if (!board.answer()) return std::nullopt;
  const std::size_t row = *board.answer();
  Recommendation result;
  result.metric = board.metric();
  result.row = row;
  result.standing = standing_of(board, row);
  result.label = result.standing.verified ? "verified"
                 : board.is_calibrated()  ? "calibrated"
                                          : "proxy";
  result.probability_best = chance_of_best(board, row);
  result.chance_of_better = board.chance_of_better();
  if (board.best() != row) result.ahead_here = standing_of(board, *board.best());
  result.final_rounds = board.is_final(row) ? num_final_rounds(board.row(row)) : 0;
  result.calibration = calibration_of(board);
  result.constants = board.setup().target;
  result.to_verify = to_verify(board);
  return result;
}

double chance_of_best(const Scoreboard& board, std::size_t row) {
  constexpr std::size_t max_competitors = 20;
  constexpr int draws = 4000;
  const Spread in_search = pooled_spread(board.spread_in_search());
  const Spread of_finals = board.spread_of_finals();
  std::vector<Competitor> all = {competitor(board, row, in_search, of_finals)};
  for (const std::size_t other : board.best_rows(max_competitors))
    if (other != row) all.push_back(competitor(board, other, in_search, of_finals));

  std::mt19937_64 generator(0);
  const auto draw = [&](const Competitor& one) {
    if (one.standard_error == 0) return one.mean;
    std::student_t_distribution<double> student(one.degrees_of_freedom);
    return one.mean + one.standard_error * student(generator);
  };
  int won = 0;
  for (int i = 0; i < draws; ++i) {
    const double mine = draw(all.front());
    // A tie is a win: the rule that broke it has chosen.
    won += std::all_of(all.begin() + 1, all.end(),
                       [&](const Competitor& other) { return draw(other) <= mine; })
               ? 1
               : 0;
  }
  return static_cast<double>(won) / draws;
}

}  // namespace dstune
