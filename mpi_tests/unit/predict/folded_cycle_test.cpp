/// Cycles whose equal layers are folded take the times of the whole ones, to the last bit.

#include <cstdlib>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "dstune/predict/step_predictor.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

constexpr ModelFamily families[] = {
    ModelFamily::gpt2,   ModelFamily::llama,       ModelFamily::mistral,  ModelFamily::qwen2,
    ModelFamily::phi3,   ModelFamily::opt,         ModelFamily::gpt_neox, ModelFamily::qwen3,
    ModelFamily::bert,   ModelFamily::olmo2,       ModelFamily::smollm3,  ModelFamily::granite,
    ModelFamily::gemma2, ModelFamily::gemma3_text, ModelFamily::falcon,   ModelFamily::distilbert,
};

class Draws {
 public:
  explicit Draws(unsigned seed) : random_(seed) {}

  template <class Value>
  Value pick(std::initializer_list<Value> values) {
    return values.begin()[random_() % values.size()];
  }

  ModelSpec model(ModelFamily family) {
    ModelSpec model = test::tiny_model(family);
    model.num_layers = pick({1, 6, 13, 24, 33, 48, 61});
    model.tie_embeddings = pick({false, true});
    if (pick({false, true}) && model.architecture.norm == NormKind::rms) {
      // A full layer behind every few with a window, or a pattern that no period has.
      model.attention_window = 3;
      const int every = pick({2, 4, 6});
      for (int layer = every - 1; layer < model.num_layers; layer += every)
        model.full_layers.push_back(layer);
      if (pick({0, 0, 1}) == 1) model.unrotated_layers = {model.num_layers / 2};
    }
    return model;
  }

  TrainingConfig config(int stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.micro_batch = pick({1, 3});
    config.accumulation_steps = pick({1, 1, 2, 3, 5});
    config.precision = pick({Precision::fp32, Precision::bf16, Precision::fp16});
    config.recompute = pick({Recompute::none, Recompute::selective, Recompute::block});
    config.cpu_checkpointing = pick({false, true});
    config.synchronize_checkpoint_boundary = pick({false, false, true});
    config.overlap_comm = pick({false, true});
    config.contiguous_gradients = pick({false, true});
    config.reduce_scatter = pick({false, true, true});
    config.fp32_gradient_accumulation = pick({false, true});
    config.reduce_bucket_size = pick<std::int64_t>({100, 300, 1000, 3000, 1'000'000});
    config.offload_optimizer = pick({OffloadDevice::none, OffloadDevice::none, OffloadDevice::cpu});
    if (stage == 3) {
      config.offload_param = pick({OffloadDevice::none, OffloadDevice::none, OffloadDevice::cpu});
      config.offload_ratio = pick({1.0, 1.0, 0.5});
      config.sub_group_size = pick<std::int64_t>({500, 1'000'000});
      config.zero_hpz_partition_size = pick({1, 1, 2});
      config.memory_efficient_linear = pick({false, true});
    }
    config.stage3_param_persistence_threshold = pick<std::int64_t>({0, 50, 1'000});
    config.stage3_model_persistence_threshold = pick<std::int64_t>({1'000, 1'000'000'000});
    config.stage3_prefetch_bucket_size = pick<std::int64_t>({0, 200, 800, 3'000, 1'000'000});
    config.stage3_max_live_parameters = pick<std::int64_t>({500, 2'000, 4'000, 20'000, 1'000'000});
    config.stage3_max_reuse_distance = pick<std::int64_t>({0, 1'500, 5'000, 1'000'000});
    config.stage3_allgather_sequential = pick({false, false, true});
    config.stage3_use_all_reduce_for_fetch_params = pick({false, false, true});
    config.stage3_module_granularity_threshold = pick<std::int64_t>({0, 0, 300, 2'000});
    return config;
  }

 private:
  std::mt19937 random_;
};

std::int64_t draws() {
  const char* const asked = std::getenv("DSTUNE_FOLDED_CYCLES");
  return asked != nullptr ? std::stoll(asked) : 25;
}

bool is_folded(const StepPlan& plan) {
  return !plan.cycle.front().repeated.empty();
}

bool has_plan(const ModelSpec& model, const TrainingConfig& config, int group_size) {
  return partition_violation(config, group_size).empty() &&
         model_violation(model, config, group_size).empty();
}

/// Where streams run beside each other and share links, and where a rank runs its program in order.
std::vector<DeviceProfile> profiles() {
  Cluster cluster{.device = *find_device_spec("h100")};
  cluster.network = *find_network_spec("ib-ndr");
  DeviceProfile published = published_profile(completed(cluster));
  DeviceProfile in_order = published;
  in_order.concurrent_streams = !published.concurrent_streams;
  return {published, in_order};
}

class FoldedCycle : public testing::TestWithParam<ModelFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, FoldedCycle, testing::ValuesIn(families));

TEST_P(FoldedCycle, TakesTheTimeOfTheWholeOne) {
  const test::SomeWorkspaces workspaces;
  const std::vector<DeviceProfile> machines = profiles();
  int folded_ones[4] = {};
  for (std::int64_t seed = 0; seed < draws(); ++seed) {
    Draws draw(static_cast<unsigned>(seed));
    const ModelSpec model = draw.model(GetParam());
    StepPlanner planner(model, workspaces), folding(model, workspaces);
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " stage " + std::to_string(stage));
      const TrainingConfig config = draw.config(stage);
      const int group_size = draw.pick({1, 2, 3, 8});
      if (!has_plan(model, config, group_size)) continue;
      const StepPlan& folded = folding.folded_cycle(config, group_size);
      const StepPlan& whole = planner.plan(config, group_size);
      if (is_folded(folded)) ++folded_ones[stage];
      EXPECT_TRUE(repeats_alike(folded));
      EXPECT_EQ(cycle_overheads(folded).ends, cycle_overheads(whole).ends);
      EXPECT_EQ(cycle_overheads(folded).middle, cycle_overheads(whole).middle);
      for (const DeviceProfile& machine : machines) {
        OperationTimes times(machine, {group_size, 1});
        const CycleTime time = cycle_time(folded, times), of_whole = cycle_time(whole, times);
        EXPECT_EQ(time.ends_s, of_whole.ends_s);
        EXPECT_EQ(time.middle_s, of_whole.middle_s);
        EXPECT_EQ(time.num_ends, of_whole.num_ends);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(folded_ones[0], draws() / 16);
  EXPECT_GT(folded_ones[3], draws() / 16);
}

TEST(FoldedCycle, OfALargeModelIsOfFewLayers) {
  const test::SomeWorkspaces workspaces;
  const ModelSpec model = preset("llama-3-70b");
  TrainingConfig config;
  config.precision = Precision::bf16;
  config.overlap_comm = true;
  StepPlanner planner(model, workspaces);
  const auto steps_of = [](const StepPlan& plan) { return plan.cycle.front().steps.size(); };
  for (const int stage : {0, 3}) {
    config.zero_stage = stage;
    const std::size_t folded = steps_of(planner.folded_cycle(config, 512));
    EXPECT_LT(3 * folded, steps_of(planner.plan(config, 512))) << stage;
  }
}

}  // namespace
}  // namespace dstune
