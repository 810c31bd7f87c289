#include "deviations.hpp"

#include <algorithm>
#include <cmath>

namespace dstune {

std::size_t draw_one_of(std::span<const double> log_weights, std::mt19937_64& random) {
  const double most = *std::ranges::max_element(log_weights);
  std::array<double, DeviationLevels::count> sums{};
  double sum = 0;
  for (std::size_t each = 0; each < log_weights.size(); ++each)
    sums[each] = sum += std::exp(log_weights[each] - most);
  const double drawn = sum * std::uniform_real_distribution<double>()(random);
  const auto last = sums.begin() + static_cast<std::ptrdiff_t>(log_weights.size()) - 1;
  return static_cast<std::size_t>(std::lower_bound(sums.begin(), last, drawn) - sums.begin());
}

DeviationLevels::DeviationLevels(double lowest, double highest) {
  for (std::size_t each = 0; each < count; ++each) {
    levels_[each] = lowest * std::pow(highest / lowest, static_cast<double>(each) / (count - 1.0));
    logarithms_[each] = std::log(levels_[each]);
    squares_[each] = levels_[each] * levels_[each];
  }
}

DeviationLevels::Beliefs DeviationLevels::believed(double usual, double freedom) const {
  Beliefs beliefs{};
  for (std::size_t each = 0; each < count; ++each) {
    const double away = (logarithms_[each] - std::log(usual)) / freedom;
    beliefs[each] = -away * away / 2;
  }
  return beliefs;
}

double DeviationLevels::draw(const Beliefs& prior, double num, double squares,
                             std::mt19937_64& random) const {
  Beliefs beliefs = prior;
  for (std::size_t each = 0; each < count; ++each)
    beliefs[each] -= num * logarithms_[each] + squares / squares_[each] / 2;
  return levels_[draw_one_of(beliefs, random)];
}

double DeviationLevels::draw(const Beliefs& prior, std::span<const double> squares,
                             std::span<const double> own_variances, std::mt19937_64& random) const {
  // Logarithms would take most of the time: one of a product does for many variances.
  constexpr std::size_t block = 32;
  Beliefs beliefs = prior;
  for (std::size_t each = 0; each < count; ++each) {
    double sum = 0;
    for (std::size_t first = 0; first < squares.size(); first += block) {
      const std::size_t end = std::min(first + block, squares.size());
      double product = 1;
      for (std::size_t number = first; number < end; ++number) {
        const double variance = own_variances[number] + squares_[each];
        product *= variance;
        sum += squares[number] / variance;
      }
      sum += std::log(product);
    }
    beliefs[each] -= sum / 2;
  }
  return levels_[draw_one_of(beliefs, random)];
}

}  // namespace dstune
