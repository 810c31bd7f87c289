// Plans a second of a 48-layer model, and what accumulation adds; and of a 70B on 64 x 8 ranks:
// plan_bench All of a plan, the figures of its memory alone, and the cycle that times follow from;
// and such cycles of members that gather alike, as most of a search do.
#include <benchmark/benchmark.h>

#include "dstune/plan/step_plan.hpp"
#include "fixed_workspaces.hpp"

namespace dstune {
namespace {

using Build = const StepPlan& (*)(StepPlanner& planner, const TrainingConfig& config,
                                  int group_size);

const StepPlan& all_of(StepPlanner& planner, const TrainingConfig& config, int group_size) {
  return planner.plan(config, group_size);
}
const StepPlan& figures_of(StepPlanner& planner, const TrainingConfig& config, int group_size) {
  return planner.figures(config, group_size);
}
const StepPlan& cycle_of(StepPlanner& planner, const TrainingConfig& config, int group_size) {
  return planner.folded_cycle(config, group_size);
}

/// Another order of stage 3's gathers each time: the last plan's is of no use.
constexpr auto gathers = &TrainingConfig::stage3_prefetch_bucket_size;
constexpr auto buckets = &TrainingConfig::reduce_bucket_size;

/// The plans differ in one number.
void build(benchmark::State& state, Build make, std::int64_t TrainingConfig::*number,
           const char* name, int group_size) {
  TrainingConfig config;
  config.precision = Precision::bf16;
  config.zero_stage = static_cast<int>(state.range(0));
  config.accumulation_steps = state.range(1);
  const FixedWorkspaces workspaces;
  StepPlanner planner(preset(name), workspaces);
  for (auto _ : state) {
    ++(config.*number);
    benchmark::DoNotOptimize(&make(planner, config, group_size));
  }
  state.SetItemsProcessed(state.iterations());
}

void of_stages(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"stage", "accumulation"})->ArgsProduct({{0, 1, 2, 3}, {1, 4}});
}

BENCHMARK_CAPTURE(build, all, all_of, gathers, "gpt2-xl", 8)->Apply(of_stages);
BENCHMARK_CAPTURE(build, figures, figures_of, gathers, "gpt2-xl", 8)->Apply(of_stages);
BENCHMARK_CAPTURE(build, cycle, cycle_of, gathers, "gpt2-xl", 8)->Apply(of_stages);
BENCHMARK_CAPTURE(build, cycle_gathers_known, cycle_of, buckets, "gpt2-xl", 8)->Apply(of_stages);
BENCHMARK_CAPTURE(build, all_of_70b, all_of, gathers, "llama-3-70b", 512)->Apply(of_stages);
BENCHMARK_CAPTURE(build, cycle_of_70b_gathers_known, cycle_of, buckets, "llama-3-70b", 512)
    ->Apply(of_stages);
BENCHMARK_CAPTURE(build, cycle_of_70b, cycle_of, gathers, "llama-3-70b", 512)->Apply(of_stages);

}  // namespace
}  // namespace dstune

BENCHMARK_MAIN();
