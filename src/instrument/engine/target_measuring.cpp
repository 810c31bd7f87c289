#include "dstune/instrument/target_measuring.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/clock.hpp"
#include "dstune/base/log.hpp"

namespace dstune {
namespace {

/// Not their mean: whatever disturbs a step makes it longer.
double lower_quartile_s(std::vector<double> times_s) {
  const auto place = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 4);
  std::ranges::nth_element(times_s, place);
  return *place;
}

}  // namespace

std::vector<CalibrationPoint> TargetMeasuring::run(std::span<const TinyEngine> engines) {
  const SteadyClock::time_point began = SteadyClock::now();
  std::vector<CalibrationPoint> points;
  double longest_s = 0;
  std::vector<bool> has_failed(engines.size());
  while (true) {
    const std::size_t before = points.size();
    for (std::size_t each = 0; each < engines.size(); ++each) {
      const double spent_s = seconds(SteadyClock::now() - began);
      const bool has_enough = points.size() >= min_tiny_engines;
      const double end_s = has_enough ? options_.limit_s : options_.last_s;
      if (is_cut_short_ || spent_s + longest_s > end_s) return points;
      if (has_failed[each]) continue;
      const auto point = point_of(engines[each]);
      has_failed[each] = !point;
      if (point) points.push_back(*point);
      longest_s = std::max(longest_s, seconds(SteadyClock::now() - began) - spent_s);
    }
    if (points.size() == before) return points;
  }
}

std::optional<CalibrationPoint> TargetMeasuring::point_of(const TinyEngine& engine) {
  const auto measured_s = step_s(engine, options_.own_step);
  const auto target_s = measured_s ? step_s(engine, options_.engine) : std::nullopt;
  if (!target_s) return std::nullopt;
  log::debug(fmt::format("{}: {:.4g} s here, {:.4g} s in DeepSpeed", engine.experiment.name,
                         *measured_s, *target_s));
  return CalibrationPoint{*measured_s, *target_s, engine.experiment.config.precision,
                          engine.overheads};
}

std::optional<double> TargetMeasuring::step_s(const TinyEngine& engine, std::uint64_t instrument) {
  const Experiment& experiment = engine.experiment;
  Trial trial{.model = &engine.model,
              .experiment = &experiment,
              .instrument = instrument,
              .measure = options_.measure,
              .timeout_s = options_.timeout_s};
  if (instrument == options_.engine) {
    trial.input.ds_config = experiment.ds_config.dump();
    trial.drain_timeout_s = options_.drain_timeout_s;
  }
  const TrialEnd end = run_(trial);
  is_cut_short_ = is_cut_short_ || end.is_last;
  const std::vector<double> times_s = timed_steps_s(end.measurement);
  if (end.measurement.status == Status::ok && !times_s.empty()) return lower_quartile_s(times_s);
  if (failure_.empty() && !is_cut_short_)
    failure_ = fmt::format("{}: {}", experiment.name, end.measurement.reason);
  return std::nullopt;
}

}  // namespace dstune
