#include "stopping.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dstune::train {
namespace {

std::size_t count_of(int steps) {
  return static_cast<std::size_t>(std::max(steps, 0));
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

WarmupRule::WarmupRule(const MeasureOptions& options, const WorkloadTraits& traits,
                       const WarmupNeed& need, const Policy::Measuring& policy)
    : least_(count_of(need.least)),
      is_watched_(need.is_watched),
      usual_(count_of(options.start_profile_step)),
      longest_s_(policy.warmup_share_of_slice * options.slice_s(policy)),
      policy_(&policy) {
  if (traits.has_simulated_times) {
    least_ = usual_;
    is_watched_ = false;
  } else if (options.asks_for_warmup) {
    least_ = std::max(least_, usual_);
  }
}

WarmupRule::WarmupRule(const KeptRun& kept, const Policy::Measuring& policy)
    : least_(count_of(kept.warmup_steps)), is_watched_(false), policy_(&policy) {}

bool WarmupRule::is_over(const std::vector<double>& step_times_s) const {
  const std::size_t steps = step_times_s.size();
  if (steps < least_) return false;
  if (!is_watched_) return true;
  // One step alone does not tell whether they still fall.
  const bool has_settled = steps >= 2 && step_times_s[steps - 1] >=
                                             (1 - policy_->steady_change) * step_times_s[steps - 2];
  if (has_settled || steps >= std::max(least_, usual_) + policy_->max_extra_warmup_steps)
    return true;
  return steps >= usual_ &&
         std::accumulate(step_times_s.begin(), step_times_s.end(), 0.0) >= longest_s_;
}

int steps_until_settled(const std::vector<double>& warmup_s, const std::vector<double>& timed_s,
                        const Policy::Measuring& policy) {
  if (timed_s.empty()) return static_cast<int>(std::max<std::size_t>(warmup_s.size(), 1));
  const double bound_s = (1 + policy.steady_change) * median_of(timed_s);
  const auto settled =
      std::ranges::find_if(warmup_s, [&](double step_s) { return step_s <= bound_s; });
  return static_cast<int>(std::max<std::ptrdiff_t>(settled - warmup_s.begin(), 1));
}

TimingRule::TimingRule(const MeasureOptions& options, const WorkloadTraits& traits,
                       const Policy& policy)
    : policy_(&policy),
      is_raced_early_(traits.is_raced_early),
      min_steps_(policy.measuring.min_timed_steps),
      slice_s_(options.slice_s(policy.measuring)) {
  const int asked_for = options.end_profile_step - options.start_profile_step + 1;
  min_steps_ = std::max(min_steps_, static_cast<std::size_t>(std::max(asked_for, 0)));
  next_look_ = min_steps_;
}

bool TimingRule::is_race_look(std::size_t timed_steps) const {
  return dstune::is_race_look(timed_steps, policy_->racing) ||
         (is_raced_early_ && is_early_race_look(timed_steps, policy_->racing));
}

StoppingDecision TimingRule::decide(const std::vector<double>& timed_s,
                                    const IncumbentEstimate& incumbent) {
  const Policy::Measuring& measuring = policy_->measuring;
  const std::size_t steps = timed_s.size();
  spent_s_ += timed_s.back();
  has_looked_ = false;
  if (steps >= min_steps_ &&
      (spent_s_ >= slice_s_ || steps >= std::max(measuring.max_timed_steps, min_steps_)))
    return StoppingDecision::enough;
  // Looks are few and far between: one at every step would stop at the first lucky streak.
  const bool is_look = steps >= next_look_;
  has_looked_ = is_look || is_race_look(steps);
  if (has_lost_race(timed_s, incumbent, *policy_) ||
      (is_raced_early_ && has_lost_race_early(timed_s, incumbent, *policy_)))
    return StoppingDecision::lost;
  if (!is_look) return StoppingDecision::go_on;
  next_look_ = std::max(
      steps + 1, static_cast<std::size_t>(measuring.look_growth * static_cast<double>(steps)));
  // A lucky streak is short: then the steps are taken to be as correlated as they are feared to be.
  const bool is_short = steps < policy_->intervals.few_samples;
  const MeanEstimate estimate = estimate_mean(
      timed_s, is_short ? policy_->intervals.correlation_feared : 0, policy_->intervals);
  const double half = student_t(0.95, estimate.degrees_of_freedom) * estimate.standard_error;
  const double wanted = is_short ? measuring.half_width_of_few : measuring.half_width;
  return half <= wanted * estimate.mean ? StoppingDecision::enough : StoppingDecision::go_on;
}

}  // namespace dstune::train
