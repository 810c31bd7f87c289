#include "target/target_measuring.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/group/group_table.hpp"
#include "waiting.hpp"

namespace dstune {
namespace {

/// Changes whenever the engines, or what is made of them, do.
constexpr int target_version = 1;

/// Where times are off by more, on the mean, what is counted does not explain them.
constexpr double max_fit_error = 0.25;

/// Of the groups that most members of the space run on; of these the largest.
GroupShape usual_shape(const PlannedSpace& space) {
  std::map<GroupShape, int> counts;
  for (const PlannedExperiment* member : members_to_run(space)) ++counts[member->experiment.shape];
  require(!counts.empty(), "something is planned");
  return std::ranges::max_element(
             counts, {}, [](const auto& one) { return std::pair(one.second, one.first.size()); })
      ->first;
}

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
  const bool in_engine = instrument == options_.engine;
  const Experiment& experiment = engine.experiment;
  message::Assign order{.experiment = experiment.name,
                        .config = experiment.config,
                        .world_ranks = world_ranks_,
                        .instrument = instrument,
                        .tiny = message::Tiny{engine.model, options_.measure}};
  if (in_engine) order.input.ds_config = experiment.ds_config.dump();
  driver_.attempts().begin(std::move(order),
                           {.timeout_s = options_.timeout_s,
                            .overdue = "took longer than " + format_duration(options_.timeout_s),
                            .abort_grace_s = options_.abort_grace_s,
                            .drain_timeout_s = in_engine ? options_.drain_timeout_s : 0},
                           driver_.now());
  const Measurement measurement = await();
  const std::vector<double> times_s = timed_steps_s(measurement);
  if (measurement.status == Status::ok && !times_s.empty()) return lower_quartile_s(times_s);
  if (failure_.empty() && !is_cut_short_)
    failure_ = fmt::format("{}: {}", experiment.name, measurement.reason);
  return std::nullopt;
}

Measurement TargetMeasuring::await() {
  Attempts& attempts = driver_.attempts();
  Measurement measurement;
  IdleBackoff idle;
  for (;;) {
    driver_.listen();
    for (Attempts::Event& event : attempts.take_events()) {
      auto* const ended = std::get_if<Attempts::Ended>(&event);
      if (ended == nullptr) continue;
      for (const std::string& note : ended->notes) log::info("measuring DeepSpeed's work: " + note);
      is_cut_short_ = is_cut_short_ || !ended->unusable.empty();
      measurement = std::move(ended->measurement);
    }
    if (!is_cut_short_ && options_.is_to_be_ended && options_.is_to_be_ended()) {
      is_cut_short_ = true;
      attempts.abort(driver_.now());
    }
    driver_.speak();
    if (attempts.is_empty()) return measurement;
    idle.pause();
  }
}

/// Of the engine among the job's instruments: it and our own step are two.
static std::uint64_t place_of_engine(const OpenJob& job) {
  return job.job.is_by_engine() ? 1 : 0;
}

std::string key_of_target(const OpenJob& ready) {
  const GroupShape shape = usual_shape(ready.space);
  return record_key(
      {{"target_version", target_version},
       {"machine", ready.fingerprint},
       {"num_gpus", shape.num_gpus},
       {"num_nodes", shape.num_nodes},
       {"deepspeed", to_text(ready.job.deepspeed_version)},
       {"versions", (*ready.instruments)[place_of_engine(ready)]->environment().at("versions")},
       {"beginning_with", json::write(*ready.target)}});
}

void measure_target(OpenJob& ready, AttemptDriver& driver,
                    const std::function<bool()>& is_to_be_ended) {
  if (ready.target_key.empty()) return;
  if (ready.history.target_key == ready.target_key) {
    const json::Document document = json::Document::of(ready.history.target, "journal");
    ready.target = json::read<TargetConstants>(document.node());
    return;
  }
  // What an earlier job has found out stands as it is.
  if (ready.is_search_complete) return;
  const GroupShape shape = usual_shape(ready.space);
  const std::vector<TinyEngine> engines = tiny_engines(shape, ready.job.deepspeed_version);
  log::info("tiny engines of DeepSpeed measure what its work costs here");
  const SteadyClock::time_point began = SteadyClock::now();
  TargetMeasuring measuring(
      driver, aligned_groups(ready.training_ranks, shape.num_gpus, shape.num_nodes).front(),
      {.own_step = 1 - place_of_engine(ready),
       .engine = place_of_engine(ready),
       .is_to_be_ended = is_to_be_ended});
  const std::vector<CalibrationPoint> points = measuring.run(engines);
  if (points.size() < min_tiny_engines) {
    log::warning(
        fmt::format("the costs of DeepSpeed's work here are not known, since {} tiny engines have "
                    "run and {} are needed{}: the constants that come with the program stay",
                    points.size(), min_tiny_engines,
                    measuring.failure().empty() ? "" : " (" + measuring.failure() + ")"));
    return;
  }
  if (!measuring.failure().empty())
    log::info("at least one tiny engine failed: " + measuring.failure());
  TargetConstants fitted = fit_machine(points, *ready.target);
  fitted.num_engines = static_cast<int>(points.size());
  if (fitted.fit_error > max_fit_error) {
    log::warning(fmt::format(
        "the costs of DeepSpeed's work here are not known, since times of {} tiny engines are off "
        "by {:.0f} %, as where something else keeps the machine busy: the constants that come with "
        "the program stay",
        points.size(), 100 * fitted.fit_error));
    return;
  }
  ready.target = std::move(fitted);
  log::info(fmt::format(
      "{} tiny engines have measured DeepSpeed's work in {}: times off by {:.1f} %", points.size(),
      format_duration(seconds(SteadyClock::now() - began)), 100 * ready.target->fit_error));
  ready.journal->add(event::target(ready.target_key, json::write(*ready.target)));
  ready.journal->commit();
}

}  // namespace dstune
