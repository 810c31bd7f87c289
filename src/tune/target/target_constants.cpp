#include "target/target_constants.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/group/group_table.hpp"
#include "target/trial_runs.hpp"

namespace dstune {
namespace {

/// Changes whenever the engines, or what is made of them, do.
constexpr int target_version = 1;

/// The counted costs do not explain times that are off by more, on the mean.
constexpr double max_fit_error = 0.25;

/// The groups that most members of the space run on; the largest of them where there are several.
GroupShape usual_shape(const PlannedSpace& space) {
  std::map<GroupShape, int> counts;
  for (const PlannedExperiment* member : members_to_run(space)) ++counts[member->experiment.shape];
  require(!counts.empty(), "something is planned");
  return std::ranges::max_element(
             counts, {}, [](const auto& one) { return std::pair(one.second, one.first.size()); })
      ->first;
}

/// The place of the engine among the job's instruments: it and our own step are two.
std::uint64_t place_of_engine(const OpenJob& job) {
  return job.job.is_by_engine() ? 1 : 0;
}

}  // namespace

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
  // An earlier job's findings stand as they are.
  if (ready.is_search_complete) return;
  const GroupShape shape = usual_shape(ready.space);
  const std::vector<TinyEngine> engines = tiny_engines(shape, ready.job.deepspeed_version);
  log::info("tiny engines of DeepSpeed measure what its work costs here");
  const SteadyClock::time_point began = SteadyClock::now();
  TrialRuns runs(
      driver,
      {.world_ranks = aligned_groups(ready.training_ranks, shape.num_gpus, shape.num_nodes).front(),
       .is_to_be_ended = is_to_be_ended});
  const std::uint64_t engine = place_of_engine(ready);
  TargetMeasuring measuring([&](const Trial& trial) { return runs.run(trial); },
                            {.own_step = 1 - engine, .engine = engine});
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
