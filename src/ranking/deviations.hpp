#pragma once
/// Deviations are drawn from a few levels, whatever their belief looks like. Local.

#include <array>
#include <cstddef>
#include <random>
#include <span>

namespace dstune {

/// One of several, by the logarithms of their weights; at most as many as there are levels.
std::size_t draw_one_of(std::span<const double> log_weights, std::mt19937_64& random);

class DeviationLevels {
 public:
  static constexpr std::size_t count = 32;
  /// The belief in each level: a logarithm, but for a constant.
  using Beliefs = std::array<double, count>;

  DeviationLevels(double lowest, double highest);

  [[nodiscard]] double lowest() const { return levels_.front(); }
  [[nodiscard]] double highest() const { return levels_.back(); }
  /// The logarithm of a deviation is normal, give or take `freedom`.
  [[nodiscard]] Beliefs believed(double usual, double freedom) const;
  /// Draws that of so many normal numbers with this sum of squares.
  double draw(const Beliefs& prior, double num, double squares, std::mt19937_64& random) const;
  /// … of numbers with these squares, each of which has a variance of its own beside.
  double draw(const Beliefs& prior, std::span<const double> squares,
              std::span<const double> own_variances, std::mt19937_64& random) const;

 private:
  std::array<double, count> levels_{}, logarithms_{}, squares_{};
};

}  // namespace dstune
