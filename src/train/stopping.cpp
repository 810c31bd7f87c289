#include "stopping.hpp"

#include <cmath>
#include <numeric>

namespace dstune::train {
namespace {

bool is_steady(const std::vector<double>& times_s, const Policy::Measuring& policy) {
  const auto window = static_cast<std::ptrdiff_t>(policy.steady_window);
  if (std::ssize(times_s) < 2 * window) return false;
  const auto middle = times_s.end() - window;
  const double last = std::accumulate(middle, times_s.end(), 0.0);
  const double before = std::accumulate(middle - window, middle, 0.0);
  return std::abs(last - before) <= policy.steady_change * before;
}

}  // namespace

bool WarmupRule::is_over(const std::vector<double>& step_times_s) const {
  const auto least = static_cast<std::size_t>(std::max({options.start_profile_step, min_steps, 0}));
  const std::size_t steps = step_times_s.size();
  if (steps < least) return false;
  if (has_simulated_times || steps >= least + policy->max_extra_warmup_steps) return true;
  const double spent_s = std::accumulate(step_times_s.begin(), step_times_s.end(), 0.0);
  return spent_s >= policy->warmup_share_of_slice * options.slice_s(*policy) ||
         is_steady(step_times_s, *policy);
}

TimingRule::TimingRule(const MeasureOptions& options, const Policy& policy)
    : policy_(&policy),
      min_steps_(policy.measuring.min_timed_steps),
      slice_s_(options.slice_s(policy.measuring)) {
  const int asked_for = options.end_profile_step - options.start_profile_step + 1;
  min_steps_ = std::max(min_steps_, static_cast<std::size_t>(std::max(asked_for, 0)));
  next_look_ = min_steps_;
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
  has_looked_ = is_look || is_race_look(steps, policy_->racing);
  if (has_lost_race(timed_s, incumbent, *policy_)) return StoppingDecision::lost;
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
