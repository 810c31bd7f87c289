// Runs as verdicts take them. That is found when a run has ended, and not for each verdict.
#include "run_facts.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {
namespace {

/// In whole milliseconds, so that what the journal keeps of a time says the same: it cuts off what
/// is below a microsecond, and cutting off again gives the same, as rounding does not.
double seconds_of(std::chrono::system_clock::time_point time) {
  constexpr double ms_per_s = 1000;
  return static_cast<double>(
             std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch()).count()) /
         ms_per_s;
}

/// Nothing if no step was timed.
template <class EndedRun>
std::optional<RunFacts> facts_of(const EndedRun& run, std::size_t number, StepEstimate step,
                                 const Policy& policy) {
  const std::vector<double> timed_s = timed_steps_s(run.measurement);
  const Status status = run.measurement.status;
  if ((status != Status::ok && status != Status::raced_out) || timed_s.empty()) return std::nullopt;
  RunFacts facts;
  facts.run = number;
  facts.begin_s = seconds_of(run.started_at);
  facts.end_s = seconds_of(run.finished_at);
  facts.is_alone = run.is_alone;
  facts.error = policy.runs.unknown_error;
  const Interval interval = step_interval(timed_s, step, policy.intervals);
  facts.log_speed = -std::log(interval.mean);
  if (timed_s.size() > 1) {
    if (step == StepEstimate::mean) {
      const MeanEstimate estimate = estimate_mean(timed_s, 0, policy.intervals);
      facts.error = estimate.standard_error / estimate.mean;
      facts.degrees = static_cast<double>(timed_s.size() - 1);
    } else {
      // Two of the steps make the interval.
      facts.error = (interval.high - interval.low) / (2 * 1.96 * interval.mean);
      facts.degrees = 1;
    }
  }
  facts.error = std::min(policy.runs.largest_error, facts.error);
  return facts;
}

/// Robust: by the median, and the median distance from it.
PredictionErrors spread_of_errors(const std::vector<double>& errors) {
  if (errors.empty()) return {};
  const double center = median(errors);
  std::vector<double> distances;
  for (const double error : errors) distances.push_back(std::abs(error - center));
  constexpr double deviations_of_median = 1.4826;
  return {center, deviations_of_median * median(distances), errors.size()};
}

}  // namespace

std::optional<double> predicted_log_speed(const Record& record) {
  const auto& throughput = record.predicted.throughput;
  if (!throughput || !(*throughput > 0) || !std::isfinite(*throughput)) return std::nullopt;
  return std::log(*throughput / static_cast<double>(batch_of(record.experiment)));
}

void Scoreboard::note_facts(std::size_t member) {
  const Row& row = rows_[member];
  facts_.erase(member);
  loads_.forget(member);
  first_runs_.reset();
  is_verdict_new_ = false;
  if (!row.record) return;
  note_facts_of(member, *row.record, 0);
  for (std::size_t run = 0; run < row.repeats.size(); ++run)
    note_facts_of(member, row.repeats[run], run + 1);
}

/// It is the last one.
void Scoreboard::note_repeat(std::size_t member) {
  is_verdict_new_ = false;
  const Row& row = rows_[member];
  if (row.record) note_facts_of(member, row.repeats.back(), row.repeats.size());
}

/// A run that was raced out tells the load, and nothing else.
template <class EndedRun>
void Scoreboard::note_facts_of(std::size_t member, const EndedRun& run, std::size_t number) {
  const auto facts = facts_of(run, number, step_estimate_, *setup_.policy);
  if (!facts) return;
  loads_.add(member, *facts, predicted_log_speed(*rows_[member].record));
  if (run.measurement.status != Status::ok) return;
  // Runs once more stand beside the first one.
  if (number == 0 || facts_.contains(member)) facts_[member].push_back(*facts);
}

const std::vector<RunFacts>& Scoreboard::facts_of_runs(std::size_t member) const {
  static const std::vector<RunFacts> none;
  const auto facts = facts_.find(member);
  return facts != facts_.end() ? facts->second : none;
}

FirstRuns Scoreboard::first_runs() const {
  FirstRuns first_runs;
  std::vector<double> errors;
  std::vector<std::pair<double, std::size_t>> scores;
  visit_run([&](std::size_t member, const Row& row) {
    const std::vector<RunFacts>& facts = facts_of_runs(member);
    if (facts.empty()) return;
    if (const auto predicted = predicted_log_speed(*row.record))
      errors.push_back(facts.front().log_speed + load_of(member).expected - *predicted);
    if (!first_values_.contains(member) || fails_again(row, setup_.policy->answering)) return;
    if (mean_step_s(row.record->measurement) > 0)
      scores.emplace_back(score_at(member, load_of(member).expected), member);
  });
  const std::size_t most = std::min(
      scores.size(), std::max(setup_.policy->runs.max_runs, setup_.policy->runs.max_runs_quick));
  std::partial_sort(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(most),
                    scores.end(), [](const auto& one, const auto& other) {
                      return one.first != other.first ? one.first > other.first
                                                      : one.second < other.second;
                    });
  for (std::size_t place = 0; place < most; ++place)
    first_runs.best.push_back(scores[place].second);
  first_runs.errors = spread_of_errors(errors);
  return first_runs;
}

}  // namespace dstune
