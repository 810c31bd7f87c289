#pragma once
/// The machine's drift: what runs near in time share. It is an Ornstein-Uhlenbeck process, whose
/// correlation falls off exponentially with the time between two runs. So its precision has three
/// diagonals, and all that is asked of it takes time in proportion to the runs. Local.

#include <cstddef>
#include <span>
#include <vector>

namespace dstune {

class Drift {
 public:
  /// `at_s`: of each run; runs at the same time have one moment. `lengths`: how long drift may
  /// last, in times between two runs.
  Drift(const std::vector<double>& at_s, std::span<const double> lengths);

  [[nodiscard]] std::size_t num_moments() const { return num_moments_; }
  /// In the order of time.
  [[nodiscard]] std::size_t moment_of(std::size_t run) const { return moments_[run]; }

  /// Adds the precision of a drift of this length and variance: `below` is what a moment and the
  /// next one share.
  void add_precision(std::size_t length, double variance, std::span<double> diagonal,
                     std::span<double> below) const;
  /// The squares of a drift in units of its own deviation, which is 1: x' C⁻¹ x.
  [[nodiscard]] double squares(std::size_t length, std::span<const double> drift) const;
  /// The logarithm of C's determinant.
  [[nodiscard]] double log_determinant(std::size_t length) const {
    return shapes_[length].log_determinant;
  }

 private:
  /// From a moment to the next one.
  struct Shape {
    std::vector<double> kept;       ///< the share that is left of the drift
    std::vector<double> precision;  ///< of what is new
    double log_determinant = 0;
  };

  std::size_t num_moments_ = 0;
  std::vector<std::size_t> moments_;
  std::vector<Shape> shapes_;
};

}  // namespace dstune
