/// Activations that forward leaves for backward, and those that backward computes again.

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/plan/step_plan.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using test::build;
using test::copied;
using test::count_of;
using test::every;

std::int64_t activations_at_peak(std::int64_t layers, ModelFamily family, Recompute recompute) {
  ModelSpec model = family == ModelFamily::gpt2 ? test::tiny_gpt2() : test::tiny_model(family);
  model.hidden_size = 256;
  model.num_heads = 4;
  model.num_kv_heads = model.architecture.norm == NormKind::layer ? 4 : 2;
  model.head_size = 64;
  model.intermediate_size = 1024;
  model.max_positions = 128;
  model.num_layers = layers;
  TrainingConfig config = test::tiny_config(0);
  config.precision = Precision::bf16;
  config.recompute = recompute;
  config.sequence_length = 128;
  return build(model, config, 1)
      .memory.categories_at_peak[static_cast<std::size_t>(Category::activations)];
}

TEST(ActivationsTest, ALayerKeepsThePublishedBytes) {
  using enum ModelFamily;
  // Key heads are half of the heads in LLaMA and Qwen3.
  constexpr std::int64_t tokens = 2 * 128, h = 256, a = 4, f = 1024;
  struct Kept {
    ModelFamily family;
    std::int64_t none, selective;  ///< bytes of a token
  };
  // Selective recompute keeps products and attention; of BERT the sum before the last norm and its
  // statistics, too; of Qwen3 the raw product in the place of q and k.
  for (const auto& [family, none, selective] :
       {Kept{gpt2, 32 * h + 4 * a + 16, 20 * h + 4 * a},
        Kept{opt, 32 * h + 4 * a + 16, 20 * h + 4 * a},
        Kept{bert, 32 * h + 4 * a + 16, 22 * h + 4 * a + 8},
        Kept{gpt_neox, 30 * h + 4 * a + 16, 18 * h + 4 * a},
        Kept{falcon, 28 * h + 4 * a + 8, 18 * h + 4 * a},
        Kept{llama, 14 * h + 6 * f + 4 * a + 8, 10 * h + 4 * f + 4 * a},
        Kept{qwen3, 17 * h + 6 * f + 10 * a + 8, 10 * h + 4 * f + 4 * a},
        // The input, both branches' results, their sums' first, and the norms' statistics.
        Kept{gemma2, 18 * h + 6 * f + 4 * a + 16, 14 * h + 4 * f + 4 * a + 8},
        Kept{olmo2, 17 * h + 6 * f + 4 * a + 16, 12 * h + 4 * f + 4 * a + 4}}) {
    const auto of_a_layer = [family = family](Recompute recompute) {
      return activations_at_peak(6, family, recompute) - activations_at_peak(5, family, recompute);
    };
    EXPECT_EQ(of_a_layer(Recompute::none), tokens * none) << to_text(family);
    EXPECT_EQ(of_a_layer(Recompute::selective), tokens * selective) << to_text(family);
    EXPECT_EQ(of_a_layer(Recompute::block), tokens * 2 * h) << to_text(family);
  }
}

TEST(ActivationsTest, LayersHaveTheirWindows) {
  ModelSpec model = test::tiny_llama();
  model.attention_window = 5;
  model.full_layers = {1};
  TrainingConfig config = test::tiny_config(0);
  const auto windows = [&] {
    std::vector<std::int64_t> found;
    const StepPlan plan = build(model, config, 1);
    for (const Step& step : plan.cycle.front().steps) {
      if (const auto* forward = std::get_if<op::AttentionForward>(&step.operation))
        found.push_back(forward->window);
      if (const auto* backward = std::get_if<op::AttentionBackward>(&step.operation))
        found.push_back(backward->window);
    }
    return found;
  };
  EXPECT_EQ(windows(), (std::vector<std::int64_t>{5, 0, 5, 5, 0, 5}));
  config.sequence_length = 5;
  EXPECT_EQ(windows(), std::vector<std::int64_t>(6, 0));
}

TEST(ActivationsTest, LogitsComeInChunksOfBoundedSize) {
  TrainingConfig config = test::tiny_config(0);
  config.sequence_length = 1024;
  const StepPlan plan = build(preset("gpt2"), config, 1);
  std::int64_t rows = 0;
  for (const auto& loss : every<op::CrossEntropy>(plan.cycle.front().steps)) {
    EXPECT_EQ(loss.first_row, rows);
    // Rows begin at multiples of 128 bytes.
    EXPECT_EQ(loss.stride, 50272);
    EXPECT_LE(loss.rows * loss.stride * 4, std::int64_t{256} << 20);
    EXPECT_EQ(loss.rows % 128, 0);
    EXPECT_FLOAT_EQ(loss.scale, 1.0F / 2048.0F);
    rows += loss.rows;
  }
  EXPECT_EQ(rows, 2048);
}

// The order and memory are the same on every backend, whether or not a library can do both.
TEST(ActivationsTest, GeluIsPartOfTheProductsBesideIt) {
  const auto count = [](const std::vector<Step>& steps, View op::Matmul::*view) {
    const auto products = every<op::Matmul>(steps);
    return std::count_if(products.begin(), products.end(),
                         [&](const op::Matmul& product) { return product.*view; });
  };
  using enum ModelFamily;
  for (const ModelFamily family : {gpt2, opt, gpt_neox, llama}) {
    const bool is_fused = family == gpt2;
    const ModelSpec model = family == gpt2 ? test::tiny_gpt2() : test::tiny_model(family);
    TrainingConfig config = test::tiny_config(0);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
      config.recompute = recompute;
      const auto steps = build(model, config, 1).cycle[0].steps;
      const int forwards = recompute == Recompute::block ? 6 : 3;
      const int again = recompute == Recompute::selective ? 3 : 0;
      EXPECT_EQ(count(steps, &op::Matmul::activated), is_fused ? forwards : 0);
      EXPECT_EQ(count(steps, &op::Matmul::pre_activation), is_fused ? 3 : 0);
      EXPECT_EQ(count_of<op::ActivationForward>(steps), is_fused ? again : forwards + again);
      EXPECT_EQ(count_of<op::ActivationBackward>(steps), is_fused ? 0 : 3);
    }
  }
}

// Which reads the same gradient, whatever adds them up; in the memory that the larger needs.
TEST(ActivationsTest, GradientsOfBiasesArePartOfTheProductsBesideThem) {
  using enum ModelFamily;
  for (const ModelFamily family : {gpt2, llama, bert}) {
    TrainingConfig config = test::tiny_config(0);
    config.accumulation_steps = 2;
    const StepPlan plan = build(test::tiny_model(family), config, 1);
    const test::SomeWorkspaces workspaces;
    const std::int64_t layers = plan.model.num_layers;
    for (const bool is_first : {true, false}) {
      const std::vector<Step>& steps = plan.cycle[is_first ? 0 : 1].steps;
      std::int64_t gradients = 0;
      for (const auto& product : every<op::Matmul>(steps)) {
        if (!product.d_bias) continue;
        ++gradients;
        EXPECT_TRUE(product.transpose_a);
        EXPECT_TRUE(is_first || product.accumulate);
        EXPECT_EQ(test::tensor_of(plan, product.workspace).elements * 4,
                  std::max(workspaces.matmul(product, DType::f32, DType::f32),
                           workspaces.norm(product.m)));
      }
      // BERT's head has two more, and the tokens' type is added to the embedding alone.
      const std::int64_t of_head = family == bert ? 2 : 0;
      EXPECT_EQ(gradients, family == llama ? 0 : 4 * layers + of_head);
      EXPECT_EQ(count_of<op::BiasBackward>(steps), family == bert ? 1 : 0);
    }
  }
}

TEST(ActivationsTest, RecomputeRunsForwardAgain) {
  TrainingConfig config = test::tiny_config(3);
  const auto steps = [&](Recompute recompute) {
    config.recompute = recompute;
    return build(test::tiny_gpt2(), config, 2).cycle[0].steps;
  };
  const auto none = steps(Recompute::none);
  const auto selective = steps(Recompute::selective);
  const auto block = steps(Recompute::block);
  EXPECT_EQ(count_of<op::AttentionForward>(none), 3);
  EXPECT_EQ(count_of<op::AttentionForward>(selective), 3);
  EXPECT_EQ(count_of<op::AttentionForward>(block), 6);
  // The last of a block's four products gives what is not needed again.
  EXPECT_EQ(count_of<op::Matmul>(selective), count_of<op::Matmul>(none));
  EXPECT_EQ(count_of<op::Matmul>(block), count_of<op::Matmul>(none) + 3 * 3);
  EXPECT_EQ(count_of<op::NormForward>(none), 7);
  for (const auto* again : {&selective, &block}) EXPECT_EQ(count_of<op::NormForward>(*again), 13);
}

TEST(ActivationsTest, CheckpointsWaitInHostMemory) {
  TrainingConfig config = test::tiny_config(0);
  config.recompute = Recompute::block;
  config.precision = Precision::bf16;
  config.sequence_length = 128;
  for (const ModelFamily family :
       {ModelFamily::gpt2, ModelFamily::gpt_neox, ModelFamily::bert, ModelFamily::llama}) {
    ModelSpec model = test::tiny_model(family);
    model.max_positions = 128;
    model.hidden_size = 256;
    model.num_layers = 12;
    config.cpu_checkpointing = false;
    const StepPlan without = build(model, config, 1);
    config.cpu_checkpointing = true;
    const StepPlan plan = build(model, config, 1);
    const std::int64_t checkpoint = std::int64_t{2} * 128 * 256;
    // The newest stays; the one before it is sent, but still there.
    EXPECT_EQ(plan.host_memory.arena_bytes, 11 * checkpoint * 2);
    EXPECT_EQ(copied(plan, Memory::host), 11 * checkpoint);
    EXPECT_EQ(copied(plan, Memory::device), 10 * checkpoint);
    EXPECT_EQ(without.host_memory.arena_bytes, 0);
    EXPECT_EQ(copied(without, Memory::host), 0);
    // Beside the block in backward its input is here, the next and at first the newest.
    const auto activations = static_cast<std::size_t>(Category::activations);
    EXPECT_LE(plan.memory.categories_at_peak[activations],
              without.memory.categories_at_peak[activations] - 9 * checkpoint * 2)
        << to_text(family);
  }
}

}  // namespace
}  // namespace dstune
