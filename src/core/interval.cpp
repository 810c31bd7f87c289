#include "dstune/core/interval.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <boost/math/distributions/students_t.hpp>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

/// The probability of all intervals.
constexpr double confidence = 0.95;

double square(double number) {
  return number * number;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double mean_logarithm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return sum / static_cast<double>(values.size());
}

/// From values that are taken as independent.
MeanEstimate of_independent(const std::vector<double>& values, double mean) {
  const auto count = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += square(value - mean);
  return {mean, std::sqrt(squares / (count - 1) / count), count - 1};
}

/// Means of some runs of neighbours, equally long but for one sample.
std::vector<double> batch_means(const std::vector<double>& samples,
                                const Policy::Intervals& policy) {
  const std::size_t batches =
      std::clamp(samples.size() / policy.batch_length, policy.min_batches, policy.max_batches);
  std::vector<double> means;
  for (std::size_t i = 0; i < batches; ++i) {
    const auto begin = static_cast<std::ptrdiff_t>(i * samples.size() / batches);
    const auto end = static_cast<std::ptrdiff_t>((i + 1) * samples.size() / batches);
    means.push_back(mean_of({samples.begin() + begin, samples.begin() + end}));
  }
  return means;
}

/// The factor by which correlation increases the variance of a mean of `count` samples (AR(1)).
double inflation(double autocorrelation, double count) {
  const double rest = 1 - autocorrelation;
  return (1 + autocorrelation) / rest -
         2 * autocorrelation * (1 - std::pow(autocorrelation, count)) / (count * rest * rest);
}

/// From samples of an autoregressive process of first order.
MeanEstimate of_autoregressive(const std::vector<double>& samples, double mean, double least,
                               const Policy::Intervals& policy) {
  const auto count = static_cast<double>(samples.size());
  double squares = 0;
  double products = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    squares += square(samples[i] - mean);
    if (i > 0) products += (samples[i] - mean) * (samples[i - 1] - mean);
  }
  if (squares == 0) return {mean, 0, count - 1};
  const bool is_short = samples.size() < policy.min_for_batches;
  const double lowest = std::max(least, is_short ? policy.least_correlation_of_few : 0.0);
  const double highest = is_short ? policy.most_correlation_of_few : policy.most_correlation;
  // This adds again the part that a sample's own mean hides.
  const double estimated = (count * products / squares + 1) / (count - 3);
  const double factor = inflation(std::clamp(estimated, lowest, highest), count);
  const double variance =
      squares / (count - 1) / std::max(policy.least_bias, 1 - (factor - 1) / (count - 1));
  const double degrees = is_short ? count - 1 : std::max(policy.least_degrees, count / factor - 1);
  return {mean, std::sqrt(variance * factor / count), degrees};
}

double half_width(const MeanEstimate& estimate) {
  return student_t(confidence, estimate.degrees_of_freedom) * estimate.standard_error;
}

}  // namespace

double student_t(double probability, double degrees_of_freedom) {
  using Double = boost::math::policies::policy<boost::math::policies::promote_double<false>>;
  // Sums of variances that underflow have none, or no number at all.
  const double degrees = degrees_of_freedom >= 1 ? degrees_of_freedom : 1;
  const boost::math::students_t_distribution<double, Double> t(degrees);
  return boost::math::quantile(boost::math::complement(t, (1 - probability) / 2));
}

MeanEstimate estimate_mean(const std::vector<double>& samples, double min_autocorrelation,
                           const Policy::Intervals& policy) {
  require(samples.size() >= 2, "a standard error is made of at least two samples");
  const double mean = mean_of(samples);
  if (samples.size() < policy.min_for_correlation) return of_independent(samples, mean);
  const MeanEstimate process = of_autoregressive(samples, mean, min_autocorrelation, policy);
  if (samples.size() < policy.min_for_batches) return process;
  const MeanEstimate batches = of_independent(batch_means(samples, policy), mean);
  return half_width(process) > half_width(batches) ? process : batches;
}

Interval mean_interval(const std::vector<double>& samples, const Policy::Intervals& policy) {
  require(!samples.empty(), "an interval is made of at least one sample");
  if (samples.size() == 1) return {samples[0], 0, std::numeric_limits<double>::infinity()};
  const MeanEstimate estimate = estimate_mean(samples, 0, policy);
  const double half = half_width(estimate);
  return {estimate.mean, std::max(0.0, estimate.mean - half), estimate.mean + half};
}

Interval quartile_interval(std::vector<double> samples) {
  require(!samples.empty(), "an interval is made of at least one sample");
  if (samples.size() == 1) return {samples[0], 0, std::numeric_limits<double>::infinity()};
  std::ranges::sort(samples);
  const auto last = static_cast<double>(samples.size() - 1);
  const auto at = [&](double rank) {
    const double inside = std::clamp(rank, 0.0, last);
    const auto below = static_cast<std::size_t>(inside);
    const std::size_t above = std::min(below + 1, samples.size() - 1);
    return samples[below] + (inside - std::floor(inside)) * (samples[above] - samples[below]);
  };
  constexpr double share = 0.25;
  // How many samples are below the quartile has a binomial distribution.
  const double away = 1.96 * std::sqrt(share * (1 - share) * static_cast<double>(samples.size()));
  const double quartile = at(share * last);
  return {quartile, at(share * last - away), at(share * last + away)};
}

Interval step_interval(const std::vector<double>& samples, StepEstimate estimate,
                       const Policy::Intervals& policy) {
  return estimate == StepEstimate::mean ? mean_interval(samples, policy)
                                        : quartile_interval(samples);
}

Spread spread_of(const std::vector<std::vector<double>>& runs) {
  double squares = 0;
  double degrees = 0;
  for (const std::vector<double>& means : runs) {
    if (means.size() < 2) continue;
    const double middle = mean_logarithm(means);
    for (const double mean : means) squares += square(std::log(mean) - middle);
    degrees += static_cast<double>(means.size()) - 1;
  }
  return {degrees > 0 ? std::sqrt(squares / degrees) : 0, degrees};
}

double half_width_of_run(const Spread& pooled) {
  return student_t(confidence, pooled.degrees_of_freedom) * pooled.deviation;
}

Spread pooled_spread(const Spread& measured, const Policy::Racing& policy) {
  const double degrees = policy.prior_spread_degrees + measured.degrees_of_freedom;
  const double squares = policy.prior_spread_degrees * square(policy.prior_spread) +
                         measured.degrees_of_freedom * square(measured.deviation);
  return {std::sqrt(squares / degrees), degrees};
}

IncumbentEstimate estimate_incumbent(const std::vector<double>& means_s, double square_error,
                                     const Spread& spread) {
  const auto count = static_cast<double>(means_s.size());
  return {std::exp(mean_logarithm(means_s)),
          std::sqrt((square_error + square(spread.deviation)) / count), spread.deviation,
          spread.degrees_of_freedom};
}

bool is_race_look(std::size_t timed_steps, const Policy::Racing& policy) {
  return std::ranges::find(policy.looks, timed_steps) != policy.looks.end();
}

namespace {

/// The joint interval of a challenger, whose mean has this relative error, and of the incumbent.
bool is_clearly_worse(double step_s, double own_error, double own_degrees,
                      const IncumbentEstimate& incumbent, const Policy::Racing& racing) {
  const double worse_by = step_s > 0 ? std::log(step_s / incumbent.step_s) : 0;
  if (worse_by <= std::log1p(racing.tolerated)) return false;
  const double own = square(own_error);
  const double other = square(incumbent.standard_error) + square(incumbent.spread);
  const double variance = own + other;
  // Welch and Satterthwaite.
  const double degrees = variance == 0
                             ? 1
                             : square(variance) / (square(own) / own_degrees +
                                                   square(other) / incumbent.degrees_of_freedom);
  // The look at the first step of all is one more.
  const double probability =
      1 - racing.error_of_all_looks / static_cast<double>(racing.looks.size() + 1);
  return worse_by >
         std::log1p(racing.tolerated) + student_t(probability, degrees) * std::sqrt(variance);
}

}  // namespace

bool has_lost_race(const std::vector<double>& timed_s, const IncumbentEstimate& incumbent,
                   const Policy& policy) {
  if (incumbent.step_s <= 0 || !is_race_look(timed_s.size(), policy.racing)) return false;
  // One step says nothing of how they vary.
  if (timed_s.size() == 1)
    return is_clearly_worse(timed_s[0] / policy.racing.hopeless_ratio, 0, 1, incumbent,
                            policy.racing);
  const MeanEstimate mine = estimate_mean(
      timed_s,
      timed_s.size() < policy.intervals.few_samples ? policy.intervals.correlation_feared : 0,
      policy.intervals);
  return is_clearly_worse(mine.mean, mine.standard_error / mine.mean, mine.degrees_of_freedom,
                          incumbent, policy.racing);
}

bool is_early_race_look(std::size_t timed_steps, const Policy::Racing& policy) {
  return std::ranges::find(policy.early_looks, timed_steps) != policy.early_looks.end();
}

bool has_lost_race_early(const std::vector<double>& timed_s, const IncumbentEstimate& incumbent,
                         const Policy& policy) {
  const Policy::Racing& racing = policy.racing;
  const auto look = std::ranges::find(racing.early_looks, timed_s.size());
  if (incumbent.step_s <= 0 || look == racing.early_looks.end()) return false;
  // An interruption makes steps longer, and hardly all of them.
  const double margin =
      racing.early_margins[static_cast<std::size_t>(look - racing.early_looks.begin())];
  return is_clearly_worse(std::ranges::min(timed_s) / (1 + margin), 0, 1, incumbent, racing);
}

bool has_lost_race_cold(double first_step_s, const IncumbentEstimate& incumbent,
                        const Policy& policy) {
  if (incumbent.step_s <= 0) return false;
  const double at_least_s = (first_step_s - policy.racing.cold_s) / policy.racing.cold_ratio;
  return is_clearly_worse(at_least_s, 0, 1, incumbent, policy.racing);
}

}  // namespace dstune
