// The user's framework keeps this of a forward pass: layers, recompute, logits.
#include <gtest/gtest.h>

#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using test::mixed;
using test::target_memory_of;

std::int64_t kept_activations(ModelSpec model, std::int64_t layers, const TrainingConfig& config,
                              int group_size, TargetAttention attention = TargetAttention::eager) {
  model.num_layers = layers;
  return target_memory_of(model, config, group_size, attention).parts["activations"];
}
/// Bytes of a token.
std::int64_t kept_by_a_layer(const ModelSpec& model, const TrainingConfig& config,
                             int group_size = 1,
                             TargetAttention attention = TargetAttention::eager) {
  const std::int64_t more = kept_activations(model, 13, config, group_size, attention) -
                            kept_activations(model, 12, config, group_size, attention);
  EXPECT_EQ(more % (config.micro_batch * config.sequence_length), 0);
  return more / (config.micro_batch * config.sequence_length);
}

TEST(TargetActivationsTest, AGpt2LayerKeepsKorthikantisBytesAndTheWrittenOutGelu) {
  // s·b·h·(34 + 5·a·s/h), three more tensors of the MLP's width, and statistics.
  EXPECT_EQ(kept_by_a_layer(preset("gpt2"), mixed(0, 32)),
            34 * 768 + 5 * 12 * 1024 + 3 * 2 * 4 * 768 + 16);
}

TEST(TargetActivationsTest, ALayerKeepsWhatItsPartsSave) {
  // In bf16 with flash attention and no dropout, hidden h, a heads, MLP width 4h.
  constexpr std::int64_t h = 64, a = 4;
  const auto layer = [&](ModelFamily family) {
    ModelSpec model = test::tiny_model(family);
    model.hidden_size = h;
    model.num_heads = model.num_kv_heads = a;
    model.head_size = h / a;
    model.intermediate_size = 4 * h;
    TrainingConfig config = mixed(0, 4096);
    config.sequence_length = 16;
    return kept_by_a_layer(model, config, 1, TargetAttention::flash);
  };
  const std::int64_t attention = 2 * 4 * h + 4 * a;
  EXPECT_EQ(layer(ModelFamily::gpt2), 8 * h + 16 + attention + 5 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::opt), 8 * h + 16 + attention + 8 * h);
  // q, k and v in one, rotated copies of q and k, and attention's result twice.
  EXPECT_EQ(layer(ModelFamily::gpt_neox), 6 * h + 16 + attention + 6 * h + 2 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::phi3), 16 * h + 8 + attention + 6 * h + 4 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::bert), 8 * h + 16 + attention + 2 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::qwen2), 16 * h + 8 + attention + 4 * 8 * h);
  // Four norms: inputs and values in fp32; two outputs.
  EXPECT_EQ(layer(ModelFamily::gemma2), 36 * h + 16 + attention + 4 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::gemma3_text),
            36 * h + 16 + attention + 8 * 2 * h + 8 * a + 4 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::olmo2), 20 * h + 8 + attention + 8 * 2 * h + 8 + 4 * 8 * h);
  EXPECT_EQ(layer(ModelFamily::qwen3), 16 * h + 8 + attention + 6 * 2 * h + 8 * a + 4 * 8 * h);
}

TEST(TargetActivationsTest, RecomputeKeepsTheInputOfEachLayerHereOrInHostMemory) {
  const ModelSpec model = preset("llama-7b");
  TrainingConfig config = mixed(3, 32);
  config.recompute = Recompute::block;
  EXPECT_EQ(kept_by_a_layer(model, config, 8), 2 * 4096);
  const std::int64_t here = kept_activations(model, 32, config, 8);
  config.cpu_checkpointing = true;
  EXPECT_EQ(kept_by_a_layer(model, config, 8), 0);
  EXPECT_EQ(here - kept_activations(model, 32, config, 8), std::int64_t{29} * 32 * 1024 * 2 * 4096);
}

TEST(TargetActivationsTest, SelectiveRecomputeKeepsResultsOfProductsAndAttentionKernels) {
  const auto layer = [](const char* name, TargetAttention attention) {
    TrainingConfig config = mixed(0, 64);
    config.recompute = Recompute::selective;
    return kept_by_a_layer(preset(name), config, 1, attention);
  };
  using enum TargetAttention;
  // Input, q, k and v, attention and its log-sum-exp, projection, the MLP's two: as PyTorch 2.15
  // keeps, but for a few bytes of the generators' state.
  EXPECT_EQ(layer("gpt2", sdpa), 22 * 768 + 4 * 12);
  EXPECT_EQ(layer("gpt2", eager), 20 * 768);
  EXPECT_EQ(layer("llama-7b", flash), 2 * (7 * 4096 + 2 * 11008) + 4 * 32);
}

TEST(TargetActivationsTest, LogitsTakeTwelveBytesOrThreeElements) {
  const std::int64_t tokens = 16 * 1024;
  EXPECT_EQ(target_memory_of(preset("gpt2"), mixed(0, 16), 1).parts["logits"], tokens * 50257 * 12);
  ModelSpec bert = test::tiny_model(ModelFamily::bert);
  bert.vocab_size = 30522;
  EXPECT_EQ(target_memory_of(bert, mixed(0, 16), 1).parts["logits"], tokens * 30522 * 6);
}

TEST(TargetActivationsTest, SdpaOfFewerKeysThanHeadsIsEagerInFp32) {
  ModelSpec model = preset("llama-3-8b");
  TrainingConfig config = mixed(3, 2);
  EXPECT_LT(target_memory_of(model, config, 8, TargetAttention::sdpa).total_bytes,
            target_memory_of(model, config, 8, TargetAttention::eager).total_bytes);
  config.precision = Precision::fp32;
  EXPECT_EQ(target_memory_of(model, config, 8, TargetAttention::sdpa).parts,
            target_memory_of(model, config, 8, TargetAttention::eager).parts);
}

}  // namespace
}  // namespace dstune
