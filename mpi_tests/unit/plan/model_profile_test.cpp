/// The model's profile: its parameters, what of them trains, activations and work of one sample.
#include <gtest/gtest.h>

#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

using test::mixed;

TEST(ModelProfileTest, CountsParametersAndWork) {
  TrainingConfig config = mixed(1);
  config.sequence_length = 512;
  const ModelSpec model = preset("gpt2");
  const ModelProfile profile = model_profile(model, config, {});
  EXPECT_EQ(profile.parameters, 124'439'808);
  EXPECT_EQ(profile.trainable_parameters, profile.parameters);
  EXPECT_EQ(profile.sequence_length, 512);
  EXPECT_EQ(profile.precision, config.precision);
  EXPECT_EQ(profile.flops_per_token, flops_per_token(model, 512));
}

TEST(ModelProfileTest, OfLoraItsMatricesTrain) {
  TargetSpec lora;
  lora.trainable = Trainable{.names = {}, .rank = 8, .targets = {"q_proj", "v_proj"}};
  const ModelSpec model = preset("llama-2-7b");
  const ModelProfile profile = model_profile(model, mixed(2), lora);
  // peft's print_trainable_parameters() of this model.
  EXPECT_EQ(profile.trainable_parameters, 4'194'304);
  EXPECT_EQ(profile.parameters, 6'742'609'920);
  EXPECT_LT(*profile.activation_bytes, *model_profile(model, mixed(2), {}).activation_bytes);
  // Parts that train without LoRA add nothing.
  TargetSpec head;
  head.trainable = Trainable{.names = {"lm_head.weight"}, .rank = 0, .targets = {}};
  const ModelProfile frozen = model_profile(model, mixed(2), head);
  EXPECT_EQ(frozen.parameters, 6'738'415'616);
  EXPECT_EQ(frozen.trainable_parameters, 32000 * 4096);
}

TEST(ModelProfileTest, ActivationsAreWhatOneMoreSampleTakes) {
  TargetSpec target;
  target.attention = TargetAttention::flash;
  TrainingConfig config = mixed(2);
  config.sequence_length = 2048;
  const ModelSpec model = preset("tinyllama-1.1b");
  const auto at_loss = [&](std::int64_t micro_batch) {
    config.micro_batch = micro_batch;
    return target_memory(model, config, 4, target).instants.at("loss");
  };
  const std::int64_t sample = at_loss(3) - at_loss(2);
  const ModelProfile profile = model_profile(model, config, target);
  EXPECT_EQ(*profile.activation_bytes + *profile.loss_bytes, sample);
  // Neither recompute nor the stage changes them.
  config.recompute = Recompute::block;
  config.zero_stage = 3;
  EXPECT_EQ(model_profile(model, config, target).activation_bytes, profile.activation_bytes);
}

TEST(ModelProfileTest, OurOwnStepHasNoTargetsActivations) {
  TargetSpec self;
  self.framework = TargetFramework::self;
  const ModelProfile profile = model_profile(preset("gpt2"), mixed(0), self);
  EXPECT_EQ(profile.parameters, 124'439'808);
  EXPECT_FALSE(profile.activation_bytes || profile.loss_bytes);
}

}  // namespace
}  // namespace dstune
