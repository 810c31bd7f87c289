// The estimate of the best member that a challenger is compared with while it runs.
#include <cmath>

#include <fmt/format.h>

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

/// The runs of a member that tell how fast it is.
struct TimedRuns {
  std::vector<double> means_s;
  double square_error = 0;  ///< of a mean by its own series alone, relative, on average
};

/// As they would be under the load that there is now: a challenger has the same.
TimedRuns runs_of(const Scoreboard& scoreboard, std::size_t member) {
  const Row& row = scoreboard.row(member);
  const Policy::Intervals& policy = scoreboard.policy().intervals;
  const Load now = scoreboard.load_now();
  TimedRuns runs;
  const auto add = [&](const Measurement& measurement, std::size_t run) {
    const std::vector<double> timed_s = timed_steps_s(measurement);
    if (measurement.status != Status::ok || timed_s.size() < 2) return;
    const MeanEstimate step = estimate_mean(timed_s, 0, policy);
    if (step.mean <= 0) return;
    const Load then = scoreboard.load_of(member, run);
    runs.means_s.push_back(step.mean * std::exp(now.expected - then.expected));
    runs.square_error += std::pow(step.standard_error / step.mean, 2) + std::pow(then.deviation, 2);
  };
  add(row.record->measurement, 0);
  for (std::size_t each = 0; each < row.repeats.size(); ++each)
    if (row.repeats[each].kind != RepeatKind::final_round)
      add(row.repeats[each].measurement, each + 1);
  if (!runs.means_s.empty()) runs.square_error /= static_cast<double>(runs.means_s.size());
  return runs;
}

/// How much work a step of the challenger is, the incumbent's taken as 1.
double share_of_work(const Scoreboard& scoreboard, const Row& incumbent,
                     const Experiment& challenger) {
  return work_of(challenger, scoreboard.metric()) /
         work_of(incumbent.planned.experiment, scoreboard.metric());
}

}  // namespace

IncumbentEstimate incumbent_estimate(const Scoreboard& scoreboard, const Experiment& challenger,
                                     const Overheads& challenger_overheads) {
  if (!scoreboard.best()) return {};
  const Row& incumbent = scoreboard.row(*scoreboard.best());
  auto [means_s, square_error] = runs_of(scoreboard, *scoreboard.best());
  if (means_s.empty()) return {};
  const double work = share_of_work(scoreboard, incumbent, challenger);
  const Spread spread = pooled_spread(scoreboard.spread_in_search(), scoreboard.policy().racing);
  // All of its runs are in doubt together where the load of now is.
  const double doubt = std::pow(scoreboard.load_now().deviation, 2);
  square_error += doubt * static_cast<double>(means_s.size());
  if (scoreboard.calibration()) {
    return by_target(estimate_incumbent(means_s, square_error, spread), *scoreboard.calibration(),
                     work, incumbent, challenger, challenger_overheads);
  }
  for (double& mean_s : means_s) mean_s *= work;
  return estimate_incumbent(means_s, square_error, spread);
}

std::string lost_race_text(const Scoreboard& scoreboard, const Experiment& challenger,
                           const Overheads& challenger_overheads, const Measurement& measurement) {
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (!scoreboard.best() || timed_s.empty()) return "";
  const Row& best = scoreboard.row(*scoreboard.best());
  const TimedRuns runs = runs_of(scoreboard, *scoreboard.best());
  if (runs.means_s.empty()) return "";
  const auto& calibration = scoreboard.calibration();
  const auto time_s = [&](double step_s, const Experiment& experiment, const Overheads& overheads) {
    return calibration ? calibration->target_s(step_s, experiment.config.precision, overheads)
                       : step_s;
  };
  const double best_step_s = estimate_incumbent(runs.means_s, 0, {}).step_s;
  const double best_s = time_s(best_step_s, best.planned.experiment, best.overheads) *
                        share_of_work(scoreboard, best, challenger);
  const double factor =
      time_s(mean_interval(timed_s).mean, challenger, challenger_overheads) / best_s;
  if (!(factor > 1)) return "";
  return fmt::format(
      "stopped after {} step{}: clearly slower than the best so far ({:.3g} times as long for the "
      "same work)",
      timed_s.size(), timed_s.size() == 1 ? "" : "s", factor);
}

}  // namespace dstune
