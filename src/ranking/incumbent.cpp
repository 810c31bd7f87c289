// The estimate of the best member that a challenger is compared with while it runs.
#include <cmath>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

namespace {

/// A challenger that can not win is to lose at the first look: this is a share of the incumbent's
/// step that no challenger comes near. It is positive, since 0 would mean that there is no race.
constexpr double share_that_loses = 1e-3;

/// Work of a step, in the metric's unit up to a constant.
double work_of(const Experiment& experiment, Metric metric) {
  if (metric == Metric::latency) return 1;
  const auto samples = static_cast<double>(batch_of(experiment));
  // Operations of one model and sequence length are in proportion to the samples.
  return metric == Metric::throughput ? samples : samples / experiment.shape.size();
}

/// An estimate of the incumbent's own step, which is one of the challenger's by way of the target:
/// there the two are compared.
IncumbentEstimate by_target(IncumbentEstimate estimate, const TimeCalibration& calibration,
                            double work, const Row& incumbent, const Experiment& challenger,
                            const Overheads& challenger_overheads) {
  const Precision own = incumbent.planned.experiment.config.precision;
  const auto bar_s = [&](double step_s) {
    const double target_s = work * calibration.target_s(step_s, own, incumbent.overheads);
    return calibration.measured_s(target_s, challenger.config.precision, challenger_overheads);
  };
  const double step_s = estimate.step_s;
  const double lowest_s = share_that_loses * step_s;
  estimate.step_s = bar_s(step_s);
  if (estimate.step_s <= lowest_s) {
    // The challenger's overheads alone cost as much as all that the incumbent does.
    estimate.step_s = lowest_s;
    return estimate;
  }
  // Costs stay when steps differ: one standard error of the incumbent's step is another share of
  // the challenger's. To first order scale · error · work / the challenger's scale.
  const double later_s = bar_s(step_s * std::exp(estimate.standard_error));
  estimate.standard_error = std::log(later_s / estimate.step_s);
  return estimate;
}

}  // namespace

IncumbentEstimate incumbent_estimate(const Scoreboard& scoreboard, const Experiment& challenger,
                                     const Overheads& challenger_overheads) {
  if (!scoreboard.best()) return {};
  const Row& incumbent = scoreboard.row(*scoreboard.best());
  std::vector<double> means_s;
  double square_error = 0;
  const auto add = [&](const Measurement& measurement) {
    const std::vector<double> timed_s = timed_steps_s(measurement);
    if (measurement.status != Status::ok || timed_s.size() < 2) return;
    const MeanEstimate step = estimate_mean(timed_s, 0, scoreboard.policy().intervals);
    if (step.mean <= 0) return;
    means_s.push_back(step.mean);
    square_error += std::pow(step.standard_error / step.mean, 2);
  };
  add(incumbent.record->measurement);
  for (const Repeat& repeat : incumbent.repeats)
    if (repeat.kind == RepeatKind::spread) add(repeat.measurement);
  if (means_s.empty()) return {};
  square_error /= static_cast<double>(means_s.size());
  const double work = work_of(challenger, scoreboard.metric()) /
                      work_of(incumbent.planned.experiment, scoreboard.metric());
  const Spread spread = pooled_spread(scoreboard.spread_in_search(), scoreboard.policy().racing);
  if (scoreboard.calibration()) {
    return by_target(estimate_incumbent(means_s, square_error, spread), *scoreboard.calibration(),
                     work, incumbent, challenger, challenger_overheads);
  }
  for (double& mean_s : means_s) mean_s *= work;
  return estimate_incumbent(means_s, square_error, spread);
}

}  // namespace dstune
