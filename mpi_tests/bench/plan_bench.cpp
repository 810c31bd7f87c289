// Plans a second of a 48-layer model, and what accumulation adds: plan_bench
#include <benchmark/benchmark.h>

#include "dstune/plan/step_plan.hpp"
#include "fixed_workspaces.hpp"

namespace dstune {
namespace {

void build(benchmark::State& state) {
  const ModelSpec model = preset("gpt2-xl");
  TrainingConfig config;
  config.precision = Precision::bf16;
  config.zero_stage = static_cast<int>(state.range(0));
  config.accumulation_steps = state.range(1);
  const FixedWorkspaces workspaces;
  StepPlanner planner(model, workspaces);
  for (auto _ : state) {
    // Another order of stage 3's gathers each time: the last plan's is of no use.
    ++config.stage3_prefetch_bucket_size;
    benchmark::DoNotOptimize(planner.plan(config, 8));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(build)->ArgNames({"stage", "accumulation"})->ArgsProduct({{0, 1, 2, 3}, {1, 4}});

}  // namespace
}  // namespace dstune

BENCHMARK_MAIN();
