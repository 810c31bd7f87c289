#include "target/target_constants.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/group/group_table.hpp"
#include "target/trial_runs.hpp"

namespace dstune {
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
  log::info(log_text::tiny_engines_begin);
  const SteadyClock::time_point began = SteadyClock::now();
  TrialRuns runs(
      driver,
      {.world_ranks = aligned_groups(ready.training_ranks, shape.num_gpus, shape.num_nodes).front(),
       .is_to_be_ended = is_to_be_ended});
  const std::uint64_t engine = ready.place_of_engine();
  TargetMeasuring measuring([&](const Trial& trial) { return runs.run(trial); },
                            {.own_step = 1 - engine, .engine = engine});
  const std::vector<CalibrationPoint> points = measuring.run(engines);
  if (points.size() < min_tiny_engines) {
    log::warning(fmt::format(log_text::tiny_engines_too_few, points.size(), min_tiny_engines,
                             measuring.failure().empty() ? "" : " (" + measuring.failure() + ")"));
    return;
  }
  if (!measuring.failure().empty())
    log::info(fmt::format(log_text::tiny_engine_failed, measuring.failure()));
  TargetConstants fitted = fit_machine(points, *ready.target);
  fitted.num_engines = static_cast<int>(points.size());
  if (fitted.fit_error > default_policy().predicting.max_fit_error) {
    log::warning(fmt::format(log_text::tiny_engines_off, points.size(), 100 * fitted.fit_error));
    return;
  }
  ready.target = std::move(fitted);
  log::info(fmt::format(log_text::tiny_engines_end, points.size(),
                        format_duration(seconds(SteadyClock::now() - began)),
                        100 * ready.target->fit_error));
  ready.journal->add(event::target(ready.target_key, json::write(*ready.target)));
  ready.journal->commit();
}

}  // namespace dstune
