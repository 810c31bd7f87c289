// The recommendation, and the chance that it is the best.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/run_again.hpp"

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
  const std::optional<std::size_t>& own = board.setup().baseline_row;
  std::vector<ToVerify> runs;
  for (const std::size_t row : board.best_rows(board.policy().answering.max_verified))
    runs.push_back(
        {&board.row(row).planned.experiment, static_cast<int>(runs.size()) + 1, row == own});
  if (own && std::ranges::find(runs, true, &ToVerify::is_baseline) == runs.end())
    runs.push_back({&board.row(*own).planned.experiment, 0, true});
  return runs;
}

std::optional<double> throughput_of(const Scoreboard& board, std::size_t row) {
  if (const auto target = board.target_time(row)) return target->throughput;
  const auto value = board.measured_value(row, Metric::throughput);
  return value ? std::optional(value->value) : std::nullopt;
}

std::optional<BaselineStanding> baseline_of(const Scoreboard& board, std::size_t answer) {
  const auto& row = board.setup().baseline_row;
  if (!row) return std::nullopt;
  BaselineStanding baseline{*row, board.row(*row).planned.experiment.name,
                            board.reported_value(*row)};
  const auto before = baseline.value ? throughput_of(board, *row) : std::nullopt;
  const auto after = throughput_of(board, answer);
  if (before && after && *before > 0) baseline.gain = *after / *before - 1;
  return baseline;
}

std::optional<BatchChange> batch_change_of(const Scoreboard& board, std::size_t answer) {
  const auto& today = board.setup().todays_batch;
  if (!today) return std::nullopt;
  const Experiment& experiment = board.row(answer).planned.experiment;
  const std::int64_t batch = global_batch(experiment.config, experiment.shape.size());
  return *today == batch ? std::nullopt : std::optional(BatchChange{*today, batch});
}

/// `baseline`: a throughput, as the answer's.
TuningCost cost_of(const Scoreboard& board, std::size_t answer,
                   const std::optional<BaselineStanding>& baseline) {
  constexpr double s_per_hour = 3600;
  const ScoreboardSetup& setup = board.setup();
  TuningCost cost{
      .gpu_hours = (board.elapsed_s() * setup.num_ranks + setup.earlier_rank_s) / s_per_hour,
      .earlier_jobs = setup.earlier_jobs,
      .elapsed_s = board.elapsed_s() + setup.earlier_s};
  if (!baseline || !baseline->gain || !(*baseline->gain > 0)) return cost;
  const double after = *throughput_of(board, answer);
  const double saved_s_a_sample = (1 + *baseline->gain) / after - 1 / after;
  const Experiment& experiment = board.row(answer).record->experiment;
  const auto batch = static_cast<double>(global_batch(experiment.config, experiment.shape.size()));
  cost.earned_back_steps = std::ceil(cost.elapsed_s / saved_s_a_sample / batch);
  return cost;
}

/// Members that may be better than the answer, however little.
std::vector<Undecided> undecided_of(const Scoreboard& board, const Verdict& verdict,
                                    std::size_t answer) {
  const Policy::Answering& policy = board.policy().answering;
  constexpr double upper_end = 0.975;
  std::vector<Undecided> all;
  for (std::size_t place = 0; place < verdict.rows().size() && all.size() < policy.max_undecided;
       ++place)
    if (place != answer && verdict.chance_above(place, answer) >= policy.undecided_chance)
      all.push_back({verdict.rows()[place],
                     board.row(verdict.rows()[place]).planned.experiment.name,
                     std::max(0.0, verdict.gain_at_most(place, answer, upper_end))});
  return all;
}

/// Deviations shrink with the root of the runs.
std::optional<double> more_time_s(const Scoreboard& board, std::size_t answer,
                                  const Undecided& other) {
  const Verdict& verdict = *board.verdict();
  const std::size_t place = *verdict.place_of(other.row);
  constexpr double upper_end = 0.975, lower_end = 0.025, deviations_of_95 = 3.92;
  constexpr double one_sided_95 = 1.645;
  const double deviation = (std::log1p(verdict.gain_at_most(place, answer, upper_end)) -
                            std::log1p(verdict.gain_at_most(place, answer, lower_end))) /
                           deviations_of_95;
  const double needed = std::log1p(board.policy().answering.relevant_gain) / one_sided_95;
  const double factor = std::pow(deviation / needed, 2);
  if (factor <= 1) return std::nullopt;
  double sum_s = 0;
  for (const std::size_t row : {other.row, verdict.rows()[answer]}) {
    const Record& record = *board.row(row).record;
    const double run_s =
        std::chrono::duration<double>(record.finished_at - record.started_at).count();
    const int runs = 1 + num_final_rounds(board.row(row));
    sum_s += run_s * std::ceil(runs * (factor - 1));
  }
  return sum_s;
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
  std::optional<Verdict> quick;
  result.metric = board.metric();
  result.row = row;
  result.standing = standing_of(board, row);
  result.is_by_engine = !board.setup().label.empty();
  const std::string& label = board.setup().label;
  result.label = !label.empty()             ? label
                 : result.standing.verified ? "verified"
                 : board.is_calibrated()    ? "calibrated"
                                            : "proxy";
  // A best-so-far answer is written before anything is judged.
  const Verdict& verdict = board.verdict() ? *board.verdict() : quick.emplace(board, Care::quick);
  if (const auto place = verdict.place_of(row)) {
    result.probability_best = verdict.chance_best(*place);
    result.undecided = undecided_of(board, verdict, *place);
    if (board.verdict() && !is_settled(board) && !result.undecided.empty())
      result.more_time_s = more_time_s(board, *place, result.undecided.front());
  }
  result.chance_of_better = board.chance_of_better();
  result.baseline = baseline_of(board, row);
  result.batch_change = batch_change_of(board, row);
  result.cost = cost_of(board, row, result.baseline);
  if (board.best() != row) result.ahead_here = standing_of(board, *board.best());
  result.final_rounds = num_final_rounds(board.row(row));
  result.calibration = calibration_of(board);
  result.constants = board.setup().target;
  result.to_verify = to_verify(board);
  return result;
}

}  // namespace dstune
