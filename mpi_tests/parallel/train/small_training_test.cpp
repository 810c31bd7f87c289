/// Small trainings on a device with memory and queues of its own: as many kinds of operations as
/// there are, in few steps of little work.

#include <functional>
#include <string>

#include "golden.hpp"
#include "losses_of_processor.hpp"

namespace dstune {
namespace {

using test::Golden;

struct Case {
  const char* model;
  int stage;
  Precision precision;
};

class SmallTrainingTest : public test::LossesOfProcessor, public testing::WithParamInterface<Case> {
 protected:
  void expect_losses(const std::function<void(TrainingConfig&)>& change) const {
    const auto& [name, stage, precision] = GetParam();
    const Golden golden(name);
    TrainingConfig config = golden.config;
    config.zero_stage = stage;
    config.precision = precision;
    config.loss_scale.initial_power = 12;
    config.micro_batch = 1;
    config.sequence_length = 8;
    config.overlap_comm = stage == 3;
    config.stage3_param_persistence_threshold = 100;
    change(config);
    ModelSpec model = golden.model;
    model.num_layers = 1;
    expect_losses_of_processor(model, config, golden.seed, static_cast<std::uint64_t>(stage));
  }
};

TEST_P(SmallTrainingTest, HasTheLossesOfTheProcessor) {
  expect_losses([](auto&) {});
}

TEST_P(SmallTrainingTest, ClippedWithBlocksComputedAgain) {
  expect_losses([](auto& c) {
    c.accumulation_steps = 2;
    c.recompute = Recompute::block;
    c.gradient_clipping = 0.05;
  });
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const auto& [model, stage, precision] = info.param;
  return std::string(model) + "_stage" + std::to_string(stage) + "_" +
         std::string(to_text(precision));
}

INSTANTIATE_TEST_SUITE_P(
    Models, SmallTrainingTest,
    testing::Values(Case{"gpt2", 0, Precision::fp32}, Case{"gpt2", 2, Precision::fp16},
                    Case{"llama", 1, Precision::fp32}, Case{"llama", 3, Precision::bf16},
                    Case{"bert", 2, Precision::bf16}, Case{"qwen3", 0, Precision::bf16},
                    Case{"gpt_neox", 3, Precision::fp32}),
    name_of);

}  // namespace
}  // namespace dstune
