#include "dstune/ranking/verdict.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "dstune/ranking/scoreboard.hpp"
#include "run_model.hpp"

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

/// Logarithm of the speed of a run's steps; nothing if none was timed.
std::optional<double> log_speed(const Scoreboard& scoreboard, const Measurement& measurement) {
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (measurement.status != Status::ok || timed_s.empty()) return std::nullopt;
  return -std::log(
      step_interval(timed_s, scoreboard.step_estimate(), scoreboard.policy().intervals).mean);
}

/// Runs that ended ok, and what is known of their errors.
class Runs {
 public:
  explicit Runs(const Scoreboard& scoreboard) : scoreboard_(scoreboard) {}

  [[nodiscard]] std::size_t size() const { return runs_.size(); }

  /// The first run and the repeats of a member.
  void add(std::size_t member, std::size_t place) {
    add_run(place, *scoreboard_.row(member).record);
    for (const Repeat& repeat : scoreboard_.row(member).repeats)
      if (log_speed(scoreboard_, repeat.measurement)) add_run(place, repeat);
  }

  /// A few steps say little of how far their mean may be off. A run whose steps are alike by luck
  /// would count for far more than others. So each run gets as many more degrees of freedom that
  /// say the usual error.
  [[nodiscard]] std::vector<ModelledRun> with_pooled_errors() const {
    const double usual_degrees = scoreboard_.policy().runs.usual_error_degrees;
    std::vector<double> errors;
    for (const ModelledRun& run : runs_) errors.push_back(run.error);
    const double usual = runs_.empty() ? 0 : median(std::move(errors));
    std::vector<ModelledRun> pooled = runs_;
    for (std::size_t run = 0; run < pooled.size(); ++run) {
      const double squares = degrees_[run] * std::pow(pooled[run].error, 2);
      pooled[run].error = std::sqrt((squares + usual_degrees * std::pow(usual, 2)) /
                                    (degrees_[run] + usual_degrees));
    }
    return pooled;
  }

 private:
  void add_run(std::size_t place, const auto& run) {
    const std::vector<double> timed_s = timed_steps_s(run.measurement);
    const Policy& policy = scoreboard_.policy();
    double error = policy.runs.unknown_error, degrees = 0;
    if (timed_s.size() > 1) {
      if (scoreboard_.step_estimate() == StepEstimate::mean) {
        const MeanEstimate estimate = estimate_mean(timed_s, 0, policy.intervals);
        error = estimate.standard_error / estimate.mean;
        degrees = static_cast<double>(timed_s.size() - 1);
      } else {
        // Two of the steps make the interval.
        const Interval step = step_interval(timed_s, scoreboard_.step_estimate(), policy.intervals);
        error = (step.high - step.low) / (2 * 1.96 * step.mean);
        degrees = 1;
      }
    }
    const double at_s = (seconds_of(run.started_at) + seconds_of(run.finished_at)) / 2;
    runs_.push_back({place, at_s, log_speed(scoreboard_, run.measurement).value(),
                     std::min(policy.runs.largest_error, error), run.is_alone});
    degrees_.push_back(degrees);
  }

  const Scoreboard& scoreboard_;
  std::vector<ModelledRun> runs_;
  std::vector<double> degrees_;  ///< of freedom, of each one's error
};

std::optional<double> predicted_log_speed(const Row& row) {
  const auto& throughput = row.record->predicted.throughput;
  if (!throughput || !(*throughput > 0)) return std::nullopt;
  return std::log(*throughput / static_cast<double>(batch_of(row.record->experiment)));
}

/// Robust: by the median, and the median distance from it.
PredictionErrors prediction_errors(const Scoreboard& scoreboard) {
  std::vector<double> errors;
  scoreboard.visit_run([&](std::size_t, const Row& row) {
    const auto measured = log_speed(scoreboard, row.record->measurement);
    if (!measured) return;
    if (const auto predicted = predicted_log_speed(row)) errors.push_back(*measured - *predicted);
  });
  if (errors.empty()) return {};
  const double center = median(errors);
  std::vector<double> distances;
  for (const double error : errors) distances.push_back(std::abs(error - center));
  constexpr double deviations_of_median = 1.4826;
  return {center, deviations_of_median * median(distances), errors.size()};
}

double share_of(const std::vector<double>& scores, const auto& condition) {
  double count = 0;
  for (std::size_t draw = 0; draw < scores.size(); ++draw) count += condition(draw) ? 1 : 0;
  return count / static_cast<double>(scores.size());
}

double quantile(std::vector<double> values, double probability) {
  const auto at = static_cast<std::ptrdiff_t>(probability * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

}  // namespace

Verdict::Verdict(const Scoreboard& scoreboard, Care care)
    : relevant_gain_(scoreboard.policy().answering.relevant_gain) {
  const Policy::Runs& policy = scoreboard.policy().runs;
  const bool is_quick = care == Care::quick;
  const std::size_t max_runs = is_quick ? policy.max_runs_quick : policy.max_runs;
  const int draws_of_each = is_quick ? policy.num_draws_quick : policy.num_draws;
  Runs all(scoreboard);
  std::vector<std::optional<double>> predicted;
  std::vector<std::size_t> members;
  for (const std::size_t member : scoreboard.best_first_runs(max_runs)) {
    if (members.size() >= 2 && all.size() >= max_runs) break;
    all.add(member, members.size());
    predicted.push_back(predicted_log_speed(scoreboard.row(member)));
    members.push_back(member);
  }
  num_runs_ = all.size();
  if (members.empty()) return;
  const std::vector<ModelledRun> runs = all.with_pooled_errors();
  const RunBeliefs beliefs = believe_runs(runs, predicted, prediction_errors(scoreboard),
                                          {.num_draws = draws_of_each, .policy = &policy});
  run_deviation_ = beliefs.run_deviation;
  drift_deviation_ = beliefs.drift_deviation;
  disturbed_runs_ = beliefs.disturbed_runs;

  std::vector<std::pair<std::size_t, Judged>> judged;
  best_scores_.assign(static_cast<std::size_t>(draws_of_each),
                      -std::numeric_limits<double>::infinity());
  for (std::size_t place = 0; place < members.size(); ++place) {
    judged.emplace_back(members[place], judge(scoreboard, members[place], beliefs.log_speeds[place],
                                              beliefs.draws[place]));
    for (std::size_t draw = 0; draw < best_scores_.size(); ++draw)
      best_scores_[draw] = std::max(best_scores_[draw], judged.back().second.scores[draw]);
  }
  for (auto& [member, one] : judged)
    one.chance = share_of(best_scores_,
                          [&](std::size_t draw) { return one.scores[draw] >= best_scores_[draw]; });
  std::ranges::stable_sort(judged, [](const auto& one, const auto& other) {
    if (one.second.chance != other.second.chance) return one.second.chance > other.second.chance;
    return one.second.expected_score > other.second.expected_score;
  });
  for (auto& [member, one] : judged) {
    members_.push_back(member);
    judged_.push_back(std::move(one));
  }
}

Verdict::Judged Verdict::judge(const Scoreboard& scoreboard, std::size_t member, double expected,
                               const std::vector<double>& draws) {
  const double first = log_speed(scoreboard, scoreboard.row(member).record->measurement).value();
  Judged judged;
  judged.speed = {expected - first, quantile(draws, 0.025) - first, quantile(draws, 0.975) - first};
  judged.expected_score = scoreboard.score_at(member, judged.speed.expected);
  for (const double draw : draws)
    judged.scores.push_back(scoreboard.score_at(member, draw - first));
  return judged;
}

std::optional<std::size_t> Verdict::place_of(std::size_t member) const {
  const auto found = std::ranges::find(members_, member);
  if (found == members_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - members_.begin());
}

double Verdict::chance_near_best(std::size_t place) const {
  const double tolerated = std::log1p(relevant_gain_);
  return share_of(best_scores_, [&](std::size_t draw) {
    return judged_[place].scores[draw] + tolerated >= best_scores_[draw];
  });
}

double Verdict::chance_above(std::size_t place, std::size_t other, double share) const {
  const double least = std::log1p(share);
  return share_of(best_scores_, [&](std::size_t draw) {
    return judged_[place].scores[draw] > judged_[other].scores[draw] + least;
  });
}

double Verdict::gain_at_most(std::size_t place, std::size_t other, double probability) const {
  std::vector<double> gains;
  for (std::size_t draw = 0; draw < best_scores_.size(); ++draw)
    gains.push_back(judged_[place].scores[draw] - judged_[other].scores[draw]);
  return std::expm1(quantile(std::move(gains), probability));
}

}  // namespace dstune
