#pragma once
/// A machine whose every time is known by formula, and profiles of it.

#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "plan_fixtures.hpp"

namespace dstune::test {

/// A constant, and a part that is proportional to the size.
inline double formula_s(const Work& work) {
  return 1e-6 * (1 + static_cast<double>(work.kind)) + 1e-9 * static_cast<double>(work.size);
}

/// The formula's trace of a step.
inline StepTrace formula_trace(const StepPlan& plan, double factor = 1) {
  StepTrace trace;
  for (const Segment& segment : plan.cycle) {
    for (std::int64_t i = 0; i < segment.repeat; ++i) {
      if (segment.kind != Segment::Kind::update && segment.kind != Segment::Kind::guarded_update)
        trace.push_back({nullptr, factor * formula_s(work_of_tokens(plan))});
      for (const Step& step : segment.steps) {
        const auto work = work_of(plan, step.operation);
        trace.push_back({&step.operation, work ? factor * formula_s(*work) : 0});
      }
    }
  }
  return trace;
}

inline double formula_step_s(const StepPlan& plan) {
  double sum = 0;
  for (const TracedOperation& traced : formula_trace(plan)) sum += traced.seconds;
  return sum;
}

/// As a machine of the formula would measure plans of these configurations.
inline DeviceProfile formula_profile(const ModelSpec& model,
                                     const std::vector<TrainingConfig>& configs, GroupShape shape,
                                     double slowdown = 1) {
  ProfileBuilder builder;
  for (const TrainingConfig& config : configs) {
    const StepPlan plan = build(model, config, shape.size());
    const std::vector<StepTrace> traces{formula_trace(plan), formula_trace(plan, 5),
                                        formula_trace(plan)};
    builder.add(plan, traces, std::vector{slowdown * formula_step_s(plan)});
  }
  return builder.build(shape);
}

}  // namespace dstune::test
