#include "stopping.hpp"

#include <cmath>
#include <numeric>

namespace dstune::train {
namespace {

constexpr std::size_t steady_window = 3;
constexpr double steady_change = 0.05;
constexpr std::size_t max_extra_warmup_steps = 10;
constexpr double warmup_share_of_slice = 0.5;
constexpr double interval_half_width = 0.01;
/// Where steps are so short that the budget would take millions of them.
constexpr std::size_t max_timed_steps = 10'000;

bool is_steady(const std::vector<double>& times_s) {
  if (times_s.size() < 2 * steady_window) return false;
  const auto middle = times_s.end() - steady_window;
  const double last = std::accumulate(middle, times_s.end(), 0.0);
  const double before = std::accumulate(middle - steady_window, middle, 0.0);
  return std::abs(last - before) <= steady_change * before;
}

}  // namespace

bool WarmupRule::is_over(const std::vector<double>& step_times_s) const {
  const auto least = static_cast<std::size_t>(std::max({options.start_profile_step, min_steps, 0}));
  const std::size_t steps = step_times_s.size();
  if (steps < least) return false;
  if (has_simulated_times || steps >= least + max_extra_warmup_steps) return true;
  const double spent_s = std::accumulate(step_times_s.begin(), step_times_s.end(), 0.0);
  return spent_s >= warmup_share_of_slice * options.slice_s() || is_steady(step_times_s);
}

TimingRule::TimingRule(const MeasureOptions& options)
    : min_steps_(min_timed_steps), slice_s_(options.slice_s()) {
  const int asked_for = options.end_profile_step - options.start_profile_step + 1;
  min_steps_ = std::max(min_steps_, static_cast<std::size_t>(std::max(asked_for, 0)));
  next_look_ = min_steps_;
}

StoppingDecision TimingRule::decide(const std::vector<double>& timed_s,
                                    const IncumbentEstimate& incumbent) {
  const std::size_t steps = timed_s.size();
  spent_s_ += timed_s.back();
  has_looked_ = false;
  if (steps >= min_steps_ &&
      (spent_s_ >= slice_s_ || steps >= std::max(max_timed_steps, min_steps_)))
    return StoppingDecision::enough;
  // Looks are few and far between: one at every step would stop at the first lucky streak.
  const bool is_look = steps >= next_look_;
  has_looked_ = is_look || is_race_look(steps);
  if (has_lost_race(timed_s, incumbent)) return StoppingDecision::lost;
  if (!is_look) return StoppingDecision::go_on;
  next_look_ = std::max(steps + 1, steps * 5 / 4);
  // A lucky streak is short: then the steps are taken to be as correlated as they are feared to be.
  const bool is_short = steps < few_samples;
  const MeanEstimate estimate = estimate_mean(timed_s, is_short ? conservative_autocorrelation : 0);
  const double half = student_t(0.95, estimate.degrees_of_freedom) * estimate.standard_error;
  const double wanted = is_short ? interval_half_width / 4 : interval_half_width;
  return half <= wanted * estimate.mean ? StoppingDecision::enough : StoppingDecision::go_on;
}

}  // namespace dstune::train
