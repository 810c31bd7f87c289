#include "dstune/ranking/answer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "parts.hpp"

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

Standing standing_of(const Scoreboard& board, std::size_t index) {
  const Row& row = board.row(index);
  return {&row, board.ranked_value(index), board.reported_value(index),
          verified_value(row, board.metric()), joules_of(row)};
}

std::optional<CalibrationSummary> calibration_of(const Scoreboard& board) {
  if (!board.calibration()) return std::nullopt;
  CalibrationSummary summary{*board.calibration(), board.setup().memory_offset_bytes};
  for (const UserRun& run : board.setup().user_runs) {
    const auto latency_us = board.first_value(run.row, Metric::latency);
    if (!latency_us) continue;
    const Row& row = board.row(run.row);
    const double measured_s = latency_us->value * 1e-6;
    summary.runs.push_back({row.planned.experiment.name, run.path, run.step_s, measured_s,
                            summary.fit.target_s(measured_s, row.overheads)});
  }
  return summary;
}

/// The best few, and what the user came with.
std::vector<ToVerify> to_verify(const Scoreboard& board) {
  constexpr std::size_t max_verified = 3;
  const std::optional<std::size_t>& own = board.setup().baseline_row;
  std::vector<ToVerify> runs;
  bool has_own = false;
  for (const std::size_t row : board.best_rows(max_verified)) {
    const bool is_baseline = row == own;
    has_own = has_own || is_baseline;
    runs.push_back(
        {&board.row(row).planned.experiment, static_cast<int>(runs.size()) + 1, is_baseline});
  }
  if (own && !has_own) runs.push_back({&board.row(*own).planned.experiment, 0, true});
  return runs;
}

std::string label_of(const Scoreboard& board, const Standing& standing) {
  if (standing.verified) return "verified";
  return board.calibration() ? "calibrated" : "proxy";
}

/// What no final round has put right may look better than what was measured again.
std::optional<std::size_t> best_in_a_single_run(const std::vector<Standing>& standings,
                                                const Recommendation& recommended) {
  const double sign = is_minimised(recommended.metric) ? -1 : 1;
  const auto score = [&](const Standing& one) {
    return one.ranked ? sign * one.ranked->value : -std::numeric_limits<double>::infinity();
  };
  std::optional<std::size_t> best;
  double most = score(recommended.standing);
  for (std::size_t row = 0; row < standings.size(); ++row) {
    if (num_final_rounds(*standings[row].row) > 0 || !(score(standings[row]) > most)) continue;
    most = score(standings[row]);
    best = row;
  }
  return best;
}

std::vector<Finalist> finalists_of(const Scoreboard& board) {
  std::vector<Finalist> all;
  for (const std::size_t row : board.finals().finalists) {
    Finalist& one = all.emplace_back();
    one.row = row;
    one.first_run = board.first_value(row, board.metric());
    if (board.ranked_value(row)) one.probability_best = chance_of_best(board, row);
  }
  return all;
}

}  // namespace

std::optional<Recommendation> recommendation_of(const Scoreboard& board) {
  if (!board.answer()) return std::nullopt;
  const std::size_t row = *board.answer();
  Recommendation result;
  result.metric = board.metric();
  result.row = row;
  result.standing = standing_of(board, row);
  result.label = label_of(board, result.standing);
  result.probability_best = chance_of_best(board, row);
  result.chance_of_better = board.chance_of_better();
  if (board.best() != row) result.ahead_here = standing_of(board, *board.best());
  result.final_rounds = board.is_final(row) ? num_final_rounds(board.row(row)) : 0;
  result.calibration = calibration_of(board);
  result.to_verify = to_verify(board);
  return result;
}

Answer answer_of(const Scoreboard& board) {
  Answer answer;
  answer.metric = board.metric();
  for (std::size_t row = 0; row < board.rows().size(); ++row)
    answer.standings.push_back(standing_of(board, row));
  answer.recommendation = recommendation_of(board);
  answer.best = board.best();
  answer.finals_are_done = board.finals().is_done;
  answer.no_finals_reason = board.finals().reason;
  answer.finalists = finalists_of(board);
  answer.spread_of_finals = board.spread_of_finals();
  answer.spread_in_search = board.spread_in_search();
  if (answer.recommendation)
    answer.faster_in_a_single_run = best_in_a_single_run(answer.standings, *answer.recommendation);
  answer.spaces = spaces_of(board);
  answer.best_of_sizes = best_of_sizes(board);
  answer.offers = offers_of(board);
  answer.counts = count_statuses(board.rows());
  answer.reasons = reason_groups(board.rows());
  answer.slow_hosts = slow_hosts(board.rows());
  answer.flags = count_flags(board.rows());
  answer.predictions = predictions_of(board.rows());
  answer.rank_correlation = rank_correlation_of(answer.predictions);
  answer.elapsed_s = board.elapsed_s();
  return answer;
}

namespace {

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
