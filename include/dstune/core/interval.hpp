#pragma once
/// Estimates the mean of a series of step times, and tells whether one series is clearly worse than
/// another. The formulas and their sources are in docs/inside/measuring.md. Local.

#include <cstddef>
#include <vector>

#include "dstune/core/policy.hpp"

namespace dstune {

/// A 95 % interval.
struct Interval {
  double mean = 0;
  double low = 0;
  double high = 0;
};

/// The mean of a stationary series whose members may be correlated.
struct MeanEstimate {
  double mean = 0;
  double standard_error = 0;
  double degrees_of_freedom = 1;  ///< of Student's t
};

/// From 16 samples on it is the wider of two: batch means, and an autoregressive process of first
/// order. For 5 to 15 samples it is the latter, with a moderate autocorrelation. For fewer it is
/// Student's t, as if they were independent. `min_autocorrelation`: between neighbours, at least.
/// At least two samples.
[[nodiscard]] MeanEstimate estimate_mean(
    const std::vector<double>& samples, double min_autocorrelation = 0,
    const Policy::Intervals& policy = default_policy().intervals);

/// 95 % interval of the mean step time, not below 0. At least one sample; of a single one the
/// interval is unbounded above and 0 below.
[[nodiscard]] Interval mean_interval(const std::vector<double>& samples,
                                     const Policy::Intervals& policy = default_policy().intervals);

/// The same of the time below which a quarter of the steps are: what interrupts up to half of them
/// hardly moves it. Its interval is that of order statistics, so it holds of any distribution. At
/// least one sample.
[[nodiscard]] Interval quartile_interval(std::vector<double> samples);

/// The number that stands for all steps of a run.
enum class StepEstimate {
  mean,
  first_quartile,  ///< where something interrupts steps: they are not the step's own time
};
[[nodiscard]] Interval step_interval(const std::vector<double>& samples, StepEstimate estimate,
                                     const Policy::Intervals& policy = default_policy().intervals);

/// Returns the bound that Student's t exceeds in magnitude with the probability 1 − `probability`.
/// Fewer degrees than one, and what is no number, count as one.
[[nodiscard]] double student_t(double probability, double degrees_of_freedom);

/// How much the same configuration differs from one run to the next, whatever the intervals of
/// the runs say: the standard deviation of the logarithm of its mean step time.
struct Spread {
  double deviation = 0;
  double degrees_of_freedom = 0;  ///< 0: nothing was run twice
};
/// `runs`: of each configuration, the means of its runs, all positive. The squares of
/// configurations are pooled.
[[nodiscard]] Spread spread_of(const std::vector<std::vector<double>>& runs);
/// The same where little is known: as if four degrees of freedom had said 1 %.
[[nodiscard]] Spread pooled_spread(const Spread& measured,
                                   const Policy::Racing& policy = default_policy().racing);
/// Half of the 95 % interval that this gives the logarithm of a single run's mean.
[[nodiscard]] double half_width_of_run(const Spread& pooled);

/// The incumbent's step time, with which a challenger is compared while it runs.
struct IncumbentEstimate {
  double step_s = 0;              ///< what a step of it would take to be as good; 0: no race
  double standard_error = 0;      ///< of the logarithm of step_s, run-to-run spread included
  double spread = 0;              ///< what a single run, the challenger's, differs by: as in Spread
  double degrees_of_freedom = 1;  ///< behind both
};

/// The estimate of an incumbent whose runs took these mean times a step, in the challenger's terms.
/// `square_error`: of a run's mean by its own series alone, relative, on average. At least one run.
[[nodiscard]] IncumbentEstimate estimate_incumbent(const std::vector<double>& means_s,
                                                   double square_error, const Spread& spread);

/// A challenger is only asked after so many timed steps whether it has lost.
[[nodiscard]] bool is_race_look(std::size_t timed_steps,
                                const Policy::Racing& policy = default_policy().racing);

/// Tells whether these timed steps are slower than the incumbent by more than 1 % and the joint
/// 95 % interval, which holds for all looks together (Bonferroni). A single step has lost where it
/// is so many times as long as steps of one run hardly ever are. False where their number is no
/// look's.
[[nodiscard]] bool has_lost_race(const std::vector<double>& timed_s,
                                 const IncumbentEstimate& incumbent,
                                 const Policy& policy = default_policy());

/// A challenger in DeepSpeed's engine is asked after so many timed steps, too.
[[nodiscard]] bool is_early_race_look(std::size_t timed_steps,
                                      const Policy::Racing& policy = default_policy().racing);

/// Tells the same of so few steps that they do not say how they vary: even the shortest is longer
/// than the incumbent's by a margin beside the joint interval. False where their number is no early
/// look's.
[[nodiscard]] bool has_lost_race_early(const std::vector<double>& timed_s,
                                       const IncumbentEstimate& incumbent,
                                       const Policy& policy = default_policy());

/// Tells the same of the first step of a run of our own, which may be cold: it is longer than
/// anything that a cold step is longer by.
[[nodiscard]] bool has_lost_race_cold(double first_step_s, const IncumbentEstimate& incumbent,
                                      const Policy& policy = default_policy());

}  // namespace dstune
