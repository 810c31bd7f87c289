/// Configs of the kinds that people have, and what is said of them.

#include "dstune/space/config_check.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "folder_test.hpp"

namespace dstune {
namespace {

/// "error 3 /pointer" of each finding but changed defaults.
std::vector<std::string> found_in(const std::string& text, ConfigCheck known = {}) {
  if (!known.release) known.release = Version{0, 19, 8};
  const CheckedConfig checked = check_config(json::Document::parse(text, "ds.json"), known);
  std::vector<std::string> found;
  for (const Finding& finding : checked.findings.all())
    if (finding.kind != FindingKind::changed_default)
      found.push_back(fmt::format("{} {}", to_text(finding.kind), finding.problem.pointer));
  return found;
}

using Found = std::vector<std::string>;

ConfigCheck of_release(Version release) {
  return {.release = release};
}

std::string with_batch(const std::string& members) {
  return "{\"train_micro_batch_size_per_gpu\": 2, " + members + "}";
}

TEST(ConfigCheckTest, TakesWhatDeepSpeedTakesWithoutALook) {
  EXPECT_EQ(found_in(with_batch(R"("bf16": {"enabled": true},
      "fp16": {"enabled": false, "auto_cast": true})")),
            Found{"no_effect /fp16/auto_cast"});
  EXPECT_EQ(found_in(with_batch(R"("scheduler": {"type": "WarmupLR",
      "params": {"last_batch_iteration": 7, "warmup_num_steps": 10}})")),
            Found{});
  EXPECT_EQ(found_in(with_batch(R"("activation_checkpointing":
      {"contiguous_memory_optimization": true})")),
            Found{"no_effect /activation_checkpointing"});
  EXPECT_EQ(found_in(with_batch(R"("steps_per_print": "often")")),
            Found{"unchecked /steps_per_print"});
}

TEST(ConfigCheckTest, SectionsWithMoreKeysThanRowsKeepThem) {
  EXPECT_EQ(found_in(with_batch(R"("data_efficiency": {"data_routing": {"random_ltd":
      {"total_layer_num": 12, "hidden_state_order": "batch_seq_dim"}}})")),
            Found{});
  EXPECT_EQ(found_in(with_batch(R"("progressive_layer_drop": {"enabled": true, "theta": 0.6})"),
                     of_release({0, 16, 9})),
            Found{"not_built /progressive_layer_drop/enabled"});
}

TEST(ConfigCheckTest, NoOptimizerOrSchedulerOfThatName) {
  EXPECT_EQ(found_in(with_batch(R"("optimizer": {"type": "AdamX", "params": {}})")),
            Found{"fails /optimizer/type"});
  EXPECT_EQ(found_in(with_batch(R"("optimizer": {"type": "NAdam", "params": {}})")),
            Found{"not_built /optimizer/type"});
  EXPECT_EQ(found_in(with_batch(R"("optimizer": {"type": "Adam"},
                                   "scheduler": {"type": "WarmupLr", "params": {}})")),
            Found{"fails /scheduler/type"});
}

TEST(ConfigCheckTest, AKeyThatDeepSpeedRefusesIsNoHomeOfAnother) {
  EXPECT_EQ(found_in(with_batch(R"("max_grad_norm": 1.0)")), Found{"unknown /max_grad_norm"});
}

TEST(ConfigCheckTest, WhatFollowsFromAFindingIsNotTold) {
  // Stage 0 refuses the section, whose keys have no effect then.
  EXPECT_EQ(found_in(with_batch(R"("zero_optimization": {"stage": 0,
                                   "offload_optimizer": {"device": "cpu"}})")),
            Found{"fails /zero_optimization/offload_optimizer/device"});
  // A default is not news where the key is there, misspelled.
  const CheckedConfig checked =
      check_config(json::Document::parse(with_batch(R"("gradient_cliping": 0.5)"), "ds.json"),
                   of_release({0, 19, 8}));
  ASSERT_EQ(checked.findings.all().size(), 1U);
  EXPECT_EQ(checked.findings.all().front().kind, FindingKind::mistyped);
}

TEST(ConfigCheckTest, ReleasesBetweenAndBeyondTheKnownAreTold) {
  for (const Version release : {Version{9, 9, 0}, Version{0, 10, 0}, Version{0, 16, 5}})
    EXPECT_EQ(found_in(with_batch(R"("steps_per_print": 5)"), of_release(release)),
              Found{"caution "});
}

TEST(ConfigCheckTest, PrecisionIsComparedWithTheCommand) {
  EXPECT_EQ(found_in(with_batch(R"("fp16": {"enabled": true})"),
                     {.command = "train.py --deepspeed ds.json --per_device_train_batch_size 2"}),
            Found{"fails /fp16/enabled"});
  EXPECT_EQ(
      found_in(with_batch(R"("bf16": {"enabled": true})"),
               {.command = "train.py --deepspeed ds.json --per_device_train_batch_size 2 --bf16"}),
      Found{});
}

TEST(ConfigCheckTest, OldReleasesHaveTheirOwnTypes) {
  const std::string scale = with_batch(R"("fp16": {"enabled": true, "min_loss_scale": 1e-8})");
  EXPECT_EQ(found_in(scale, of_release({0, 14, 5})), Found{});
  EXPECT_EQ(found_in(scale, of_release({0, 16, 9})), Found{});
  EXPECT_EQ(found_in(scale, of_release({0, 18, 9})), Found{"refused /fp16/min_loss_scale"});
  const std::string size =
      with_batch(R"("zero_optimization": {"stage": 2, "reduce_bucket_size": 1234567.8})");
  EXPECT_EQ(found_in(size, of_release({0, 14, 5})), Found{});
  EXPECT_EQ(found_in(size, of_release({0, 16, 9})),
            Found{"refused /zero_optimization/reduce_bucket_size"});
}

TEST(ConfigCheckTest, TellsWhatHasNoEffect) {
  EXPECT_EQ(found_in(with_batch(R"("offload_param": {"device": "cpu"})")),
            Found{"misplaced /offload_param"});
  EXPECT_EQ(found_in(with_batch(R"("zero_optimization":
      {"stage": 2, "offload_param": {"device": "cpu", "pin_memory": false}})")),
            (Found{"no_effect /zero_optimization/offload_param",
                   "not_followed /zero_optimization/offload_param/pin_memory"}));
  EXPECT_EQ(found_in(with_batch(R"("zero_optimization": {"stage": 1,
      "stage3_max_live_parameters": 7, "allgather_bucket_size": 1000})")),
            (Found{"no_effect /zero_optimization/stage3_max_live_parameters",
                   "no_effect /zero_optimization/allgather_bucket_size"}));
}

TEST(ConfigCheckTest, MistypedKeysAreErrorsAtTheTopLevelAlone) {
  EXPECT_EQ(found_in(with_batch(R"("zero_optimisation": {"stage": 3})")),
            Found{"mistyped /zero_optimisation"});
  EXPECT_EQ(found_in(with_batch(R"("zero_optimisation": {"stage": 3},
      "dstune": {"allow_unknown": true})")),
            Found{"unknown /zero_optimisation"});
  EXPECT_EQ(found_in(with_batch(R"("aio": {"block_sizes": 7})")),
            (Found{"unknown /aio/block_sizes", "no_effect /aio"}));
  EXPECT_EQ(found_in(with_batch(R"("run_name": "tuesday")")), Found{"unknown /run_name"});
}

// The degree of tensor parallelism is taken by DeepSpeed's autotuner, and not built here.
TEST(ConfigCheckTest, KeysOfTheAutotunerThatNothingReadsAreTold) {
  EXPECT_EQ(found_in(with_batch(R"("autotuning": {"enabled": true, "mp_size": 1,
      "model_info": {"profile": true}, "metric_path": null})")),
            (Found{"no_effect /autotuning/mp_size", "no_effect /autotuning/model_info"}));
  EXPECT_EQ(found_in(with_batch(R"("autotuning": {"mp_size": 2})")),
            Found{"not_built /autotuning/mp_size"});
}

TEST(ConfigCheckTest, OneCauseIsOneFinding) {
  EXPECT_EQ(found_in(with_batch(R"("optimizer": {"type": "Lamb",
      "params": {"lr": 0.1, "max_coeff": 0.3}})")),
            Found{"not_built /optimizer/type"});
  // Rules that ask for the stage are not asked.
  EXPECT_EQ(found_in(with_batch(R"("fp16": {"enabled": true,
      "fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 9})")),
            Found{"refused /zero_optimization/stage"});
  // Others are, whatever stands before them.
  EXPECT_EQ(found_in(with_batch(R"("steps_per_print": 0, "zero_optimization": {"stage": 9})")),
            (Found{"refused /zero_optimization/stage", "fails /steps_per_print"}));
}

TEST(ConfigCheckTest, BatchSizesAreCheckedForTheRanksThatAreKnown) {
  const std::string text = R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2})";
  EXPECT_EQ(found_in(text), Found{});
  ConfigCheck on_seven;
  on_seven.data_parallel_ranks = 7;
  EXPECT_EQ(found_in(text, on_seven), Found{"contradiction /train_batch_size"});
  EXPECT_EQ(found_in(R"({"train_batch_size": 255, "train_micro_batch_size_per_gpu": 2})"),
            Found{"contradiction /train_batch_size"});
  EXPECT_EQ(found_in(R"({"bf16": {"enabled": true}})"), Found{"contradiction "});
}

TEST(ConfigCheckTest, ReleasesThatRemovedASectionRefuseIt) {
  const std::string text = with_batch(R"("amp": {"enabled": false})");
  EXPECT_EQ(found_in(text, of_release({0, 19, 7})), Found{});
  EXPECT_EQ(found_in(text, of_release({0, 19, 8})), Found{"refused /amp"});
}

TEST(ConfigCheckTest, OnCpusNothingIsPageLocked) {
  ConfigCheck on_cpus;
  on_cpus.is_on_cpus = true;
  const std::string text = with_batch(R"("zero_optimization":
      {"stage": 1, "offload_optimizer": {"device": "cpu", "pin_memory": false}})");
  const std::string pin = "/zero_optimization/offload_optimizer/pin_memory";
  EXPECT_EQ(found_in(text, on_cpus), (Found{"no_effect " + pin, "not_followed " + pin}));
  EXPECT_EQ(found_in(text), Found{"not_followed " + pin});
}

class CommandCheckTest : public test::FolderTest {
 protected:
  /// The findings on a config whose training the command starts.
  [[nodiscard]] Found found_with(const std::string& arguments, const std::string& config) const {
    ConfigCheck known;
    known.command =
        fmt::format("deepspeed {} {}",
                    write("train.py", "from transformers import HfArgumentParser\n"), arguments);
    return found_in(config, known);
  }
};

TEST_F(CommandCheckTest, ArgumentsOfTheTrainerMustBeTheConfigs) {
  const std::string config = with_batch(R"("optimizer":
      {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.999]}})");
  const std::string batch = "--per_device_train_batch_size 2 ";
  EXPECT_EQ(found_with(batch + "--learning_rate 0.0003", config), Found{});
  EXPECT_EQ(found_with(batch + "--learning_rate 1e-3", config),
            Found{"contradiction /optimizer/params/lr"});
  // The Trainer's defaults are 8 and 5e-5.
  EXPECT_EQ(found_with("", config),
            (Found{"fails /train_micro_batch_size_per_gpu", "fails /optimizer/params/lr"}));
  EXPECT_EQ(found_with("--bf16 True --per_device_train_batch_size 2",
                       with_batch(R"("bf16": {"enabled": false})")),
            Found{"contradiction /bf16/enabled"});
}

}  // namespace
}  // namespace dstune
