#pragma once
/// Step times as a machine might give them: correlated with their neighbours, and another mean in
/// each run.

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace dstune::test {

/// A stationary autoregressive process of first order; deterministic for the same generator.
class StepSeries {
 public:
  /// `deviation`: of a step, relative to the mean.
  StepSeries(std::mt19937_64& generator, double mean_s, double deviation, double autocorrelation)
      : generator_(&generator),
        mean_s_(mean_s),
        deviation_(deviation),
        autocorrelation_(autocorrelation),
        state_(normal_(generator)) {}

  double next() {
    const double step_s = mean_s_ * (1 + deviation_ * state_);
    const double rest = std::sqrt(1 - autocorrelation_ * autocorrelation_);
    state_ = autocorrelation_ * state_ + rest * normal_(*generator_);
    return step_s;
  }
  std::vector<double> take(std::size_t count) {
    std::vector<double> steps_s(count);
    for (double& step_s : steps_s) step_s = next();
    return steps_s;
  }

 private:
  std::mt19937_64* generator_;
  std::normal_distribution<double> normal_;
  double mean_s_;
  double deviation_;
  double autocorrelation_;
  double state_;
};

/// The mean of one run of a configuration whose runs differ by so much (relative).
inline double mean_of_run(std::mt19937_64& generator, double mean_s, double spread) {
  std::normal_distribution<double> normal;
  return mean_s * std::exp(spread * normal(generator));
}

}  // namespace dstune::test
