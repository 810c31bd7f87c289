/// Numbers that the update reads where gradients are added up in fp32, against what DeepSpeed's
/// optimizers read (scripts/tools/deepspeed_gradient_sums.py).

#include <map>
#include <variant>

#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "dstune/core/deepspeed_version.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

/// Tells whether gradients have the numbers of 16 bits as the update reads them: follows them from
/// one tensor to the next.
bool updates_with_16_bits(const StepPlan& plan) {
  std::map<TensorId, bool> rounded;
  const auto has_16_bits = [&](View view) {
    const PlannedTensor& tensor = plan.tensors[static_cast<std::size_t>(view.tensor)];
    return tensor.dtype != DType::f32 || rounded[view.tensor];
  };
  bool result = true;
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      if (const auto* convert = std::get_if<op::Convert>(&step.operation)) {
        rounded[convert->y.tensor] = has_16_bits(convert->x);
      } else if (const auto* copy = std::get_if<op::Copy>(&step.operation)) {
        rounded[copy->y.tensor] = has_16_bits(copy->x);
      } else if (const auto* add = std::get_if<op::Add>(&step.operation)) {
        rounded[add->y.tensor] = false;
      } else if (const auto* reduce = std::get_if<op::AllReduceAverage>(&step.operation)) {
        rounded[reduce->data.tensor] = false;
      } else if (const auto* update = std::get_if<op::UpdateParameters>(&step.operation)) {
        result = result && has_16_bits(update->gradient);
      }
    }
  }
  return result;
}

TEST(GradientSumsTest, AreRoundedWhereDeepSpeedRoundsThem) {
  const auto document = json::Document::read(DSTUNE_DEEPSPEED_GRADIENT_SUMS);
  int compared = 0;
  int unreduced = 0;
  for (const json::Value& row : document.root().at("cases")) {
    TrainingConfig config = test::tiny_config(row.at("stage"));
    config.accumulation_steps = 3;
    config.precision = row.at("precision") == "bf16" ? Precision::bf16 : Precision::fp16;
    config.fp32_gradient_accumulation = true;
    if (row.at("deepspeed") == "0.19.8") config.switches = switches_of({0, 19, 8});
    if (row.at("offloaded")) config.offload_optimizer = OffloadDevice::cpu;
    if (!row.at("communication_data_type").is_null())
      config.communication_data_type = CommunicationType::fp32;
    EXPECT_EQ(row.at("optimizer") == "BF16_Optimizer", is_bf16_optimizer(config)) << row.dump();
    // The mean is read here also where DeepSpeed does not average.
    if (!row.at("is_mean")) {
      EXPECT_FALSE(config.switches.fp32_sums_are_averaged);
      EXPECT_TRUE(config.zero_stage == 1 && !is_bf16_optimizer(config)) << row.dump();
      ++unreduced;
      continue;
    }
    const StepPlan plan = test::build(test::tiny_gpt2(), config, row.at("ranks"));
    EXPECT_EQ(updates_with_16_bits(plan), row.at("in_16_bits").get<bool>()) << row.dump();
    ++compared;
  }
  EXPECT_EQ(compared, 26 + 48);
  EXPECT_EQ(unreduced, 6);
}

}  // namespace
}  // namespace dstune
