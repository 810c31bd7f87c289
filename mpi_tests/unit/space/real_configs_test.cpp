/// DeepSpeed configs as people have them, with an `autotuning` section, unchanged beside a
/// Hugging Face config.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::HasSubstr;

class RealConfigsTest : public SpaceTest {
 protected:
  RealConfigsTest() { overrides_.model = DSTUNE_MODEL_CONFIGS "/gpt2.json"; }
};

// DeepSpeed's own examples of the autotuner look so.
TEST_F(RealConfigsTest, HalfPrecisionAndMappedArguments) {
  const auto read = job(R"({"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": true},
      "autotuning": {"enabled": true, "overwrite": false, "max_train_batch_size": 4096,
        "arg_mappings": {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
                         "gradient_accumulation_steps ": "--gradient_accumulation_steps"}},
      "zero_optimization": {"stage": [0, 1, 2, 3]}})");
  const SearchSpace space(read);
  EXPECT_EQ(space.size(), 4U * 64);
  for (const auto& member : space.members()) {
    EXPECT_FALSE(member.is_pruned) << member.name << ": " << member.reason;
    EXPECT_EQ(member.config.precision, Precision::fp16);
    EXPECT_FALSE(space.experiment(member).ds_config.contains("autotuning"));
  }
  EXPECT_EQ(read.tuning.arg_mappings.back().first, "gradient_accumulation_steps");
}

// Every key of the section with the value that the documentation gives as its default.
TEST_F(RealConfigsTest, TheDocumentedSection) {
  const auto read = job(R"({"bf16": {"enabled": true}, "gradient_accumulation_steps": 2,
    "train_micro_batch_size_per_gpu": [1, 4, 16], "zero_optimization": {"stage": "all"},
    "autotuning": {
      "enabled": false, "results_dir": "autotuning_results", "exps_dir": "autotuning_exps",
      "overwrite": false, "metric": "throughput", "start_profile_step": 3, "end_profile_step": 5,
      "fast": true, "max_train_batch_size": null, "mp_size": 1, "num_tuning_micro_batch_sizes": 3,
      "tuner_type": "model_based", "tuner_early_stopping": 5, "tuner_num_trials": 50,
      "arg_mappings": null}})");
  EXPECT_EQ(SearchSpace(read).size(), 12U);
  EXPECT_EQ(read.tuning.num_trials, 50);
  EXPECT_EQ(read.tuning.tuner_type, "model_based");
}

// "auto" wherever a trainer fills the value in.
TEST_F(RealConfigsTest, AutoEverywhere) {
  const auto found = members(R"({
    "dstune": {"precision": "bf16"},
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
             "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                              "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {
      "stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
      "reduce_bucket_size": ["auto", 5e8], "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
      "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true
    },
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": [1, 2], "steps_per_print": 2000,
    "wall_clock_breakdown": false,
    "autotuning": {"enabled": true, "tuner_type": "gridsearch"}
  })");
  ASSERT_EQ(found.size(), 4U);
  const auto& config = found[0].experiment.ds_config;
  EXPECT_EQ(config["optimizer"]["params"]["betas"], "auto");
  EXPECT_EQ(config["fp16"]["enabled"], "auto");
  EXPECT_EQ(config["bf16"]["enabled"], "auto");
  EXPECT_EQ(found[0].config.precision, Precision::bf16);
  EXPECT_EQ(config["zero_optimization"]["reduce_bucket_size"], "auto");
  EXPECT_EQ(config["train_batch_size"], 1);
  EXPECT_EQ(found[0].config.reduce_bucket_size, 768 * 768) << "what the Trainer makes of auto";
  EXPECT_EQ(found[2].config.reduce_bucket_size, 500'000'000);
}

// Batch sizes and stage fixed, keys that DeepSpeed no longer knows.
TEST_F(RealConfigsTest, FixedSizesAndForgottenKeys) {
  default_ranks_ = 2;
  const auto read = job(R"({
    "train_batch_size": 16, "train_micro_batch_size_per_gpu": 8, "steps_per_print": 1,
    "zero_optimization": {"stage": 3},
    "fp16": {"enabled": true, "initial_scale_power": 12},
    "autotuning": {"enabled": true,
                   "arg_mappings": {"train_micro_batch_size_per_gpu": "--micro-batch-size"}},
    "wall_clock_breakdown": true,
    "quantize_training": {"enabled": true, "quantize_bits": {"start_bits": 16, "target_bits": 8}},
    "my_trainer": {"log_every": 10}
  })");
  const auto found = SearchSpace(read).members();
  EXPECT_EQ(std::count_if(found.begin(), found.end(),
                          [](const Member& member) { return !member.is_pruned; }),
            1)
      << "8 on each of two ranks";
  EXPECT_THAT(read.warnings, Contains(HasSubstr("/my_trainer is no key")));
  EXPECT_THAT(
      read.warnings,
      Contains(HasSubstr("so the search ignores them. They stay in the answer: wall_clock")));
}

}  // namespace
}  // namespace dstune
