#include "dstune/ranking/scoreboard.hpp"

#include <algorithm>
#include <cmath>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

std::int64_t measured_bytes(const Row& row) {
  return row.record->measurement.peak_memory.total_bytes;
}

}  // namespace

Scoreboard::Scoreboard(ScoreboardSetup setup, std::vector<Row> rows)
    : setup_(std::move(setup)), rows_(std::move(rows)), first_values_(rows_.size()) {
  if (setup_.target) calibration_ = setup_.target->time;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].record) note_first_value(row);
    if (!rows_[row].repeats.empty()) repeated_.insert(row);
  }
  note_spread();
  rank_anew();
}

bool Scoreboard::record(std::size_t row, Record record, const Overheads& overheads) {
  rows_[row].record = std::move(record);
  rows_[row].overheads = overheads;
  note_first_value(row);
  if (repeated_.contains(row)) note_spread();
  // As find_best() does over all: of equal ones the earlier in the space.
  const bool is_best =
      best_ ? is_better(row, *best_) ||
                  (row < *best_ && finite_value(row).has_value() && !is_better(*best_, row))
            : finite_value(row).has_value();
  if (is_best) best_ = row;
  if (best_ && (is_best || rows_[row].verified)) {
    const std::size_t answer = find_answer(*best_);
    if (answer != answer_) ++answer_revision_;
    answer_ = answer;
  }
  if (std::ranges::find(setup_.user_runs, row, &UserRun::row) == setup_.user_runs.end())
    return is_best;
  fit_calibration();
  return best_ == row;
}

void Scoreboard::repeat(std::size_t row, Repeat repeat) {
  rows_[row].repeats.push_back(std::move(repeat));
  repeated_.insert(row);
  note_spread();
}

void Scoreboard::verify(std::size_t row, Measurement measurement) {
  PlannedExperiment& planned = rows_[row].planned;
  if (measurement.status == Status::out_of_memory) {
    planned.status = PlanStatus::infeasible;
    planned.reason = measurement.reason;
  }
  rows_[row].verified = std::move(measurement);
}

void Scoreboard::calibrate(const TimeCalibration& calibration) {
  calibration_ = calibration;
  is_calibrated_ = true;
  ++calibration_revision_;
  rank_anew();
}

void Scoreboard::predict(std::size_t row, const Prediction& predicted) {
  Prediction& kept = rows_[row].planned.predicted;
  kept.throughput = predicted.throughput;
  kept.target_throughput = predicted.target_throughput;
}

void Scoreboard::leave_out(std::size_t row, std::string reason, PlanStatus status) {
  rows_[row].planned.status = status;
  rows_[row].planned.reason = std::move(reason);
}

void Scoreboard::begin_finals(std::vector<std::size_t> finalists) {
  finals_.finalists = std::move(finalists);
  note_spread();
}

void Scoreboard::end_finals() {
  finals_.is_done = true;
  finals_.reason.clear();
  rank_anew();
}

void Scoreboard::give_up_finals(std::string reason) {
  require(!finals_.is_done, "what has come of the finals stays");
  finals_.reason = std::move(reason);
}

void Scoreboard::conclude(double elapsed_s, std::optional<double> chance_of_better) {
  elapsed_s_ = elapsed_s;
  chance_of_better_ = chance_of_better;
}

void Scoreboard::note_first_value(std::size_t row) {
  const Record& record = *rows_[row].record;
  first_values_[row] = metric_value(record.measurement, setup_.metric, record.experiment);
  num_results_ += record.measurement.status == Status::ok ? 1 : 0;
}

void Scoreboard::note_spread() {
  std::vector<std::vector<double>> means = means_in_search();
  for (std::vector<double>& of_row : means_of_finals()) means.push_back(std::move(of_row));
  half_width_of_run_ = dstune::half_width_of_run(pooled_spread(spread_of(means)));
}

void Scoreboard::rank_anew() {
  best_ = find_best();
  answer_ = best_ ? std::optional(find_answer(*best_)) : std::nullopt;
  ++answer_revision_;
}

/// Another of the user's own configurations was measured here.
void Scoreboard::fit_calibration() {
  std::vector<CalibrationPoint> points;
  for (const UserRun& run : setup_.user_runs) {
    const auto latency_us = first_value(run.row, Metric::latency);
    if (!latency_us || !(latency_us->value > 0)) continue;
    const Row& row = rows_[run.row];
    points.push_back({latency_us->value * 1e-6, run.step_s, row.planned.experiment.config.precision,
                      row.overheads});
  }
  if (points.empty()) return;
  calibrate(fit_time(points, setup_.target ? prior_of(*setup_.target) : unknown_target()));
}

bool Scoreboard::is_better(std::size_t row, std::size_t other) const {
  const std::optional<double> mine = finite_value(row);
  const std::optional<double> theirs = finite_value(other);
  if (!mine || !theirs) return mine.has_value();
  if (is_final(row) != is_final(other)) return is_final(row);
  if (*mine != *theirs) return is_minimised(setup_.metric) ? *mine < *theirs : *mine > *theirs;
  return measured_bytes(rows_[row]) < measured_bytes(rows_[other]);
}

std::optional<std::size_t> Scoreboard::find_best() const {
  std::optional<std::size_t> best;
  for (std::size_t row = 0; row < rows_.size(); ++row)
    if (best ? is_better(row, *best) : finite_value(row).has_value()) best = row;
  if (!best || !is_final(*best)) return best;
  constexpr double tie = 0.001;
  const double value = *finite_value(*best);
  std::size_t leanest = *best;
  for (const std::size_t row : finals_.finalists) {
    const auto other = finite_value(row);
    if (!other || !is_final(row)) continue;
    const bool is_tied = std::abs(*other - value) <= tie * value;
    if (is_tied && measured_bytes(rows_[row]) < measured_bytes(rows_[leanest])) leanest = row;
  }
  return leanest;
}

std::size_t Scoreboard::find_answer(std::size_t best) const {
  auto fastest = verified_value(rows_[best], setup_.metric);
  if (!fastest) return best;
  std::size_t answer = best;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    // Without a measurement here there would be nothing to write down.
    if (!first_values_[row]) continue;
    const auto value = verified_value(rows_[row], setup_.metric);
    if (!value) continue;
    const bool is_faster =
        is_minimised(setup_.metric) ? value->value < fastest->value : value->value > fastest->value;
    if (!is_faster) continue;
    fastest = value;
    answer = row;
  }
  return answer;
}

std::vector<std::size_t> Scoreboard::best_rows(std::size_t most) const {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < rows_.size(); ++row)
    if (finite_value(row)) rows.push_back(row);
  const auto end = rows.begin() + static_cast<std::ptrdiff_t>(std::min(most, rows.size()));
  std::partial_sort(rows.begin(), end, rows.end(), [&](std::size_t one, std::size_t other) {
    return is_better(one, other) || (one < other && !is_better(other, one));
  });
  rows.erase(end, rows.end());
  return rows;
}

}  // namespace dstune
