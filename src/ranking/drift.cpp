#include "drift.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dstune {
namespace {

/// Keeps moments apart that are close beside the length of the drift.
constexpr double least_fresh = 1e-5;

}  // namespace

Drift::Drift(const std::vector<double>& at_s, std::span<const double> lengths)
    : moments_(at_s.size()) {
  std::vector<std::size_t> order(at_s.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t run) { return at_s[run]; });
  const double between_s =
      std::max((at_s[order.back()] - at_s[order.front()]) / static_cast<double>(at_s.size()), 1e-9);
  std::vector<double> times;
  for (const std::size_t run : order) {
    if (times.empty() || at_s[run] > times.back()) times.push_back(at_s[run]);
    moments_[run] = times.size() - 1;
  }
  num_moments_ = times.size();
  for (const double length : lengths) {
    Shape& shape = shapes_.emplace_back();
    for (std::size_t moment = 1; moment < times.size(); ++moment) {
      const double apart = (times[moment] - times[moment - 1]) / (length * between_s);
      // 1 - kept², without the loss of digits where two runs are close.
      const double fresh = std::max(least_fresh, -std::expm1(-2 * apart));
      shape.kept.push_back(std::exp(-apart));
      shape.precision.push_back(1 / fresh);
      shape.log_determinant += std::log(fresh);
    }
  }
}

void Drift::add_precision(std::size_t length, double variance, std::span<double> diagonal,
                          std::span<double> below) const {
  const Shape& shape = shapes_[length];
  diagonal[0] += 1 / variance;
  for (std::size_t moment = 0; moment + 1 < num_moments_; ++moment) {
    const double precision = shape.precision[moment] / variance;
    const double shared = shape.kept[moment] * precision;
    diagonal[moment] += shape.kept[moment] * shared;
    diagonal[moment + 1] += precision;
    below[moment] -= shared;
  }
}

double Drift::squares(std::size_t length, std::span<const double> drift) const {
  const Shape& shape = shapes_[length];
  double sum = drift[0] * drift[0];
  for (std::size_t moment = 0; moment + 1 < num_moments_; ++moment) {
    const double fresh = drift[moment + 1] - shape.kept[moment] * drift[moment];
    sum += fresh * fresh * shape.precision[moment];
  }
  return sum;
}

}  // namespace dstune
