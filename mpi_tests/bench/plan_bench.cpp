// Plans a second of a 48-layer model, and what accumulation adds: plan_bench
#include <benchmark/benchmark.h>

#include "dstune/plan/step_plan.hpp"

namespace dstune {
namespace {

/// Sizes of nobody's library: what is timed is the builder.
class FixedWorkspaces : public WorkspaceSizes {
 public:
  std::int64_t matmul(const op::Matmul&, DType, DType) const override { return 1 << 20; }
  std::int64_t norm(std::int64_t width) const override { return 64 * 4 * width; }
  std::int64_t attention(std::int64_t, std::int64_t, const ModelSpec&, DType) const override {
    return 1 << 16;
  }
};

void build(benchmark::State& state) {
  const ModelSpec model = preset("gpt2-xl");
  TrainingConfig config;
  config.precision = Precision::bf16;
  config.zero_stage = static_cast<int>(state.range(0));
  config.accumulation_steps = state.range(1);
  const FixedWorkspaces workspaces;
  StepPlan plan;
  for (auto _ : state) {
    rebuild_step_plan(plan, model, config, 8, 0, workspaces);
    benchmark::DoNotOptimize(plan);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(build)->ArgNames({"stage", "accumulation"})->ArgsProduct({{0, 1, 2, 3}, {1, 4}});

}  // namespace
}  // namespace dstune

BENCHMARK_MAIN();
