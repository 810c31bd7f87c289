#include "race_bar.hpp"

#include <cmath>

#include "dstune/report/validation.hpp"

namespace dstune {
namespace {

/// What a step does, in the metric's unit up to a constant.
double work_of_step(const Experiment& experiment, Metric metric) {
  const int size = experiment.shape.size();
  const auto samples = static_cast<double>(global_batch(experiment.config, size));
  switch (metric) {
    case Metric::latency:
      return 1;
    case Metric::throughput:
      return samples;
    case Metric::throughput_per_gpu:
    case Metric::flops:  // of one model and sequence length: in proportion to the samples
      return samples / size;
  }
  return samples;
}

}  // namespace

RaceBar race_bar(const Report& report, const Row& incumbent, const Experiment& challenger) {
  std::vector<double> means_s;
  double square_error = 0;
  const auto add = [&](const Measurement& measurement) {
    const std::vector<double> timed_s = timed_steps_s(measurement);
    if (measurement.status != Status::ok || timed_s.size() < 2) return;
    const MeanEstimate step = estimate_mean(timed_s);
    if (step.mean <= 0) return;
    means_s.push_back(step.mean);
    square_error += std::pow(step.standard_error / step.mean, 2);
  };
  add(incumbent.record->measurement);
  for (const Repeat& repeat : incumbent.repeats)
    if (repeat.kind == RepeatKind::spread) add(repeat.measurement);
  if (means_s.empty()) return {};
  square_error /= static_cast<double>(means_s.size());
  const double work = work_of_step(challenger, report.metric) /
                      work_of_step(incumbent.planned.experiment, report.metric);
  for (double& mean_s : means_s) mean_s *= work;
  return race_bar_of(means_s, square_error, believed_spread(spread_in_search(report)));
}

}  // namespace dstune
