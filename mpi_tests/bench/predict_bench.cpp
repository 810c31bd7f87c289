// Plans and predictions a second of a 48-layer model on one core: predict_bench
#include <benchmark/benchmark.h>

#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "fixed_workspaces.hpp"

namespace dstune {
namespace {

constexpr GroupShape shape{8, 1};

TrainingConfig config_of(int stage, std::int64_t accumulation) {
  TrainingConfig config;
  config.precision = Precision::bf16;
  config.zero_stage = stage;
  config.accumulation_steps = accumulation;
  return config;
}

/// Every operation of these plans, a microsecond each.
DeviceProfile profile_of(const ModelSpec& model, const WorkspaceSizes& workspaces) {
  ProfileBuilder builder;
  for (int stage = 0; stage <= 3; ++stage) {
    const StepPlan plan = build_step_plan(model, config_of(stage, 3), shape.size(), 0, workspaces);
    StepTrace trace;
    for (const Segment& segment : plan.cycle) {
      trace.push_back({nullptr, 1e-6});
      for (const Step& step : segment.steps) trace.push_back({&step.operation, 1e-6});
    }
    builder.add(plan, std::vector<StepTrace>{trace}, std::vector{1.0});
  }
  return builder.build(shape);
}

/// A plan, and its time on the virtual clock.
void cold(benchmark::State& state) {
  const ModelSpec model = preset("gpt2-xl");
  const FixedWorkspaces workspaces;
  const DeviceProfile profile = profile_of(model, workspaces);
  TrainingConfig config = config_of(static_cast<int>(state.range(0)), state.range(1));
  OperationTimes times(profile, shape);
  StepPlanner planner(model, workspaces);
  for (auto _ : state) {
    // Another order of stage 3's gathers each time: the last plan's is of no use.
    ++config.stage3_prefetch_bucket_size;
    benchmark::DoNotOptimize(cycle_time(planner.folded_cycle(config, shape.size()), times));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(cold)->ArgNames({"stage", "accumulation"})->ArgsProduct({{0, 1, 2, 3}, {1, 4}});

/// The clock alone, of a plan that is there.
void clock_alone(benchmark::State& state) {
  const ModelSpec model = preset("gpt2-xl");
  const FixedWorkspaces workspaces;
  const DeviceProfile profile = profile_of(model, workspaces);
  const StepPlan plan = build_step_plan(model, config_of(static_cast<int>(state.range(0)), 1),
                                        shape.size(), 0, workspaces);
  OperationTimes times(profile, shape);
  for (auto _ : state) benchmark::DoNotOptimize(cycle_time(plan, times));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(clock_alone)->ArgName("stage")->DenseRange(0, 3);

/// A whole space of 1,536 configurations by one predictor: stages, micro-batches, buckets, overlap,
/// and accumulation from 1 to 16, whose middle micro-steps are folded.
void space(benchmark::State& state) {
  const ModelSpec model = preset("gpt2-xl");
  const FixedWorkspaces workspaces;
  const DeviceProfile profile = profile_of(model, workspaces);
  std::vector<Experiment> experiments;
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::int64_t micro_batch : {1, 2, 4, 8, 16, 32}) {
      for (const std::int64_t bucket : {50'000'000, 500'000'000}) {
        for (const bool overlap : {false, true}) {
          for (std::int64_t accumulation = 1; accumulation <= 16; ++accumulation) {
            Experiment experiment;
            experiment.shape = shape;
            experiment.config = config_of(stage, accumulation);
            experiment.config.micro_batch = micro_batch;
            experiment.config.reduce_bucket_size = bucket;
            experiment.config.overlap_comm = overlap;
            experiments.push_back(experiment);
          }
        }
      }
    }
  }
  for (auto _ : state) {
    StepPredictor predictor(model, profile, workspaces);
    for (const Experiment& experiment : experiments)
      benchmark::DoNotOptimize(predictor.predict(experiment));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(experiments.size()));
}
BENCHMARK(space)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dstune

BENCHMARK_MAIN();
