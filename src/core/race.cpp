#include <algorithm>
#include <cmath>

#include "dstune/core/interval.hpp"

namespace dstune {

namespace {

constexpr double prior_deviation = 0.01;
constexpr double prior_degrees_of_freedom = 4;
/// Being worse by less is no reason to stop.
constexpr double tolerated = 0.01;
constexpr double error_of_all_looks = 0.05;

double square(double number) {
  return number * number;
}

}  // namespace

Spread spread_of(const std::vector<std::vector<double>>& runs) {
  double squares = 0;
  double degrees = 0;
  for (const std::vector<double>& means : runs) {
    if (means.size() < 2) continue;
    double sum = 0;
    for (const double mean : means) sum += std::log(mean);
    const double middle = sum / static_cast<double>(means.size());
    for (const double mean : means) squares += square(std::log(mean) - middle);
    degrees += static_cast<double>(means.size()) - 1;
  }
  return {degrees > 0 ? std::sqrt(squares / degrees) : 0, degrees};
}

double half_width_of_run(const Spread& pooled) {
  return student_t(0.95, pooled.degrees_of_freedom) * pooled.deviation;
}

Spread pooled_spread(const Spread& measured) {
  const double degrees = prior_degrees_of_freedom + measured.degrees_of_freedom;
  const double squares = prior_degrees_of_freedom * square(prior_deviation) +
                         measured.degrees_of_freedom * square(measured.deviation);
  return {std::sqrt(squares / degrees), degrees};
}

IncumbentEstimate estimate_incumbent(const std::vector<double>& means_s, double square_error,
                                     const Spread& spread) {
  const auto count = static_cast<double>(means_s.size());
  double sum = 0;
  for (const double mean_s : means_s) sum += std::log(mean_s);
  return {std::exp(sum / count), std::sqrt((square_error + square(spread.deviation)) / count),
          spread.deviation, spread.degrees_of_freedom};
}

bool is_race_look(std::size_t timed_steps) {
  return std::find(race_looks.begin(), race_looks.end(), timed_steps) != race_looks.end();
}

bool has_lost_race(const std::vector<double>& timed_s, const IncumbentEstimate& incumbent) {
  if (incumbent.step_s <= 0 || !is_race_look(timed_s.size())) return false;
  const MeanEstimate mine =
      estimate_mean(timed_s, timed_s.size() < few_samples ? conservative_autocorrelation : 0);
  const double worse_by = mine.mean > 0 ? std::log(mine.mean / incumbent.step_s) : 0;
  if (worse_by <= std::log1p(tolerated)) return false;
  const double own = square(mine.standard_error / mine.mean);
  const double other = square(incumbent.standard_error) + square(incumbent.spread);
  const double variance = own + other;
  // Welch and Satterthwaite.
  const double degrees = variance == 0
                             ? 1
                             : square(variance) / (square(own) / mine.degrees_of_freedom +
                                                   square(other) / incumbent.degrees_of_freedom);
  const double probability = 1 - error_of_all_looks / static_cast<double>(race_looks.size());
  return worse_by > std::log1p(tolerated) + student_t(probability, degrees) * std::sqrt(variance);
}

}  // namespace dstune
