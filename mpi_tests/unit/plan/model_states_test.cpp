/// States that a plan holds all the time: parameters, gradients, the optimizer.

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "dstune/plan/step_plan.hpp"
#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using test::build;
using test::padded_elements;
using test::round_up;

TEST(ModelStatesTest, ModelStatesAreThoseOfThePublishedFormulas) {
  // P parameters over N ranks in bf16, bytes: 2P + 2P + 12P, 2P + 2P + 12P/N (+ the own part's
  // gradients), 2P + 2P/N + 12P/N, 16P/N.
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  const auto persistent = [&](int stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    return test::held_bytes(build(model, config, 4), Memory::device);
  };
  const std::int64_t part = round_up(p, 8) / 4;
  EXPECT_EQ(persistent(0), 16 * p);
  EXPECT_EQ(persistent(1), 2 * round_up(p, 8) + 2 * p + 14 * part);
  EXPECT_EQ(persistent(2), 2 * round_up(p, 8) + 14 * part);
  const ParameterTable table(model);
  const std::int64_t shards = padded_elements(table, 4) / 4;
  // Norms and biases stay whole: those of a block of 10 · 6 + 30 + 37 elements, the final norm's.
  std::int64_t kept = 0;
  for (const Parameter& parameter : table.all())
    if (parameter.columns == 1) kept += round_up(parameter.elements(), 4);
  EXPECT_EQ(persistent(3), 16 * shards + 2 * kept);
}

TEST(ModelStatesTest, OffloadedStatesAreThoseOfDeepSpeed) {
  // On the host: fp32 masters, moments and gradients, 16 bytes; what waits there in 16 bit. On the
  // device: parameters, at stage 1 gradients, and staging for the largest parameter.
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  const ParameterTable table(model);
  std::int64_t largest = 0;
  for (const Parameter& parameter : table.all()) largest = std::max(largest, parameter.elements());
  const auto persistent = [&](int stage, std::int64_t accumulation, Memory memory) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    config.accumulation_steps = accumulation;
    config.offload_optimizer = OffloadDevice::cpu;
    config.stage3_param_persistence_threshold = 0;
    return test::held_bytes(build(model, config, 4), memory);
  };
  const std::int64_t part = round_up(p, 8) / 4;
  const std::int64_t shards = padded_elements(table, 4) / 4;
  for (const std::int64_t accumulation : {1, 3}) {
    EXPECT_EQ(persistent(1, accumulation, Memory::host), 18 * part + 2 * largest);
    EXPECT_EQ(persistent(1, accumulation, Memory::device),
              2 * round_up(p, 8) + 2 * p + 2 * largest);
    EXPECT_EQ(persistent(2, accumulation, Memory::device), 2 * round_up(p, 8) + 2 * largest);
    EXPECT_EQ(persistent(3, accumulation, Memory::host), 18 * shards);
    EXPECT_EQ(persistent(3, accumulation, Memory::device), 2 * shards);
  }
  EXPECT_EQ(persistent(2, 1, Memory::host), 18 * part + 2 * largest);
  // Sums over micro-steps are of whole parameters, however little of them is the rank's own.
  const std::int64_t sums = persistent(2, 3, Memory::host) - persistent(2, 1, Memory::host);
  EXPECT_GT(sums, 2 * part);
  EXPECT_LE(sums, 2 * (part + 2 * largest));
}

/// Bytes that are always there, of each memory.
struct Held {
  std::int64_t device = 0, host = 0;
  bool operator==(const Held&) const = default;
};

Held held(const TrainingConfig& config, int group_size, Category category) {
  Held bytes;
  for (const PlannedTensor& tensor : build(test::tiny_gpt2(), config, group_size).tensors) {
    if (!tensor.persistent || tensor.category != category) continue;
    (tensor.memory == Memory::device ? bytes.device : bytes.host) +=
        tensor.elements * size_bytes(tensor.dtype);
  }
  return bytes;
}

TEST(ModelStatesTest, OffloadedSumsInFp32AreWhereDeepSpeedHasThem) {
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  for (const int stage : {1, 3}) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    config.accumulation_steps = 3;
    config.offload_optimizer = OffloadDevice::cpu;
    const Held in_16_bits = held(config, 4, Category::gradients);
    config.fp32_gradient_accumulation = true;
    const Held in_fp32 = held(config, 4, Category::gradients);
    // Stage 1: sums of all gradients on the device. Stage 3: those of the own part on the host.
    const Held more{in_fp32.device - in_16_bits.device, in_fp32.host - in_16_bits.host};
    EXPECT_NEAR(static_cast<double>(more.device), stage == 1 ? 4.0 * static_cast<double>(p) : 0,
                64);
    EXPECT_NEAR(static_cast<double>(more.host), stage == 3 ? 0.5 * static_cast<double>(p) : 0, 300);
  }
}

TEST(ModelStatesTest, EachOptimizerHasItsStates) {
  struct Expected {
    OptimizerConfig optimizer;
    std::int64_t device, host;  ///< bytes of an element, with the master copy
  };
  using enum OptimizerKind;
  const Expected expected[] = {{{.kind = adamw}, 12, 12},
                               {{.kind = adam}, 12, 12},
                               {{.kind = lion}, 8, 12},
                               {{.kind = sgd}, 4, 4},
                               {{.kind = sgd, .momentum = 0.9}, 8, 8},
                               {{.kind = adagrad}, 8, 8}};
  const std::int64_t own = round_up(parameter_count(test::tiny_gpt2()), 8) / 4;
  for (const Expected& each : expected) {
    TrainingConfig config = test::tiny_config(2);
    config.precision = Precision::bf16;
    config.optimizer = each.optimizer;
    EXPECT_EQ(held(config, 4, Category::optimizer), (Held{each.device * own, 0}));
    config.offload_optimizer = OffloadDevice::cpu;
    EXPECT_EQ(held(config, 4, Category::optimizer), (Held{0, each.host * own}));
  }
}

// The table in docs/inside/memory.md, "Types of states".
TEST(ModelStatesTest, GradientsHaveTheTypesOfDeepSpeedsOptimizer) {
  struct Row {
    int stage;
    Precision precision;
    bool fp32_sums;
    double whole, own;  ///< bytes of an element of P and of P/N
    Precision averaged, updated_by;
    int buckets;  ///< 1: averaged in buckets, 0: all of them at once
  };
  using enum Precision;
  const Row rows[] = {{0, fp32, false, 4, 0, fp32, fp32, 0}, {0, bf16, false, 2, 0, bf16, bf16, 0},
                      {0, fp16, false, 2, 0, fp16, fp16, 0}, {1, fp32, false, 4, 4, fp32, fp32, 1},
                      {1, bf16, false, 2, 2, bf16, bf16, 1}, {1, fp16, false, 2, 2, fp16, fp16, 1},
                      {1, bf16, true, 6, 0, bf16, fp32, 0},  {1, fp16, true, 6, 4, fp16, fp32, 1},
                      {2, bf16, false, 0, 2, bf16, bf16, 1}, {2, fp16, false, 0, 2, fp16, fp16, 1},
                      {3, bf16, false, 0, 2, bf16, bf16, 1}, {3, bf16, true, 0, 4, bf16, fp32, 1},
                      {3, fp16, true, 0, 4, fp16, fp32, 1}};
  const std::int64_t p = parameter_count(test::tiny_gpt2());
  for (const Row& row : rows) {
    TrainingConfig config = test::tiny_config(row.stage);
    config.precision = row.precision;
    config.fp32_gradient_accumulation = row.fp32_sums;
    config.accumulation_steps = 2;
    const StepPlan plan = build(test::tiny_gpt2(), config, 4);
    const auto type_of = [&](View view) { return test::tensor_of(plan, view).dtype; };
    SCOPED_TRACE("stage " + std::to_string(row.stage) + " " + std::string(to_text(row.precision)) +
                 (row.fp32_sums ? " with sums in fp32" : ""));
    // But for padding.
    EXPECT_NEAR(static_cast<double>(held(config, 4, Category::gradients).device),
                row.whole * static_cast<double>(p) + row.own * static_cast<double>(p) / 4, 300);
    std::vector<View> reduced;
    for (const auto& whole : test::every<op::AllReduceAverage>(plan)) reduced.push_back(whole.data);
    for (const auto& part : test::every<op::ReduceScatterAverage>(plan)) reduced.push_back(part.in);
    for (const View& data : reduced) EXPECT_EQ(type_of(data), element_type(row.averaged));
    for (const auto& update : test::every<op::UpdateParameters>(plan))
      EXPECT_EQ(type_of(update.gradient), element_type(row.updated_by));
    EXPECT_EQ(reduced.size() > 1, row.buckets == 1);
    EXPECT_GT(reduced.size(), 0U);
  }
}

TEST(ModelStatesTest, StatesMayHave16Bits) {
  const std::int64_t own = round_up(parameter_count(test::tiny_gpt2()), 8) / 4;
  TrainingConfig config = test::tiny_config(2);
  config.precision = Precision::bf16;
  config.accumulation_steps = 3;
  config.low_precision_master = true;
  config.low_precision_moments = true;
  EXPECT_EQ(held(config, 4, Category::optimizer), (Held{6 * own, 0}));
  config.offload_optimizer = OffloadDevice::cpu;
  EXPECT_EQ(held(config, 4, Category::optimizer), (Held{0, 6 * own}));
  EXPECT_EQ(held(config, 4, Category::gradients), (Held{0, 2 * own}));
  config.low_precision_moments = false;
  EXPECT_EQ(held(config, 4, Category::optimizer), (Held{0, 10 * own}));
}

TEST(ModelStatesTest, OffloadedParametersAreThoseOfDeepSpeed) {
  // Their shards on the host; on the device a master copy in fp32 training, too, unless that is on
  // the host as well.
  const ModelSpec model = test::tiny_gpt2();
  const ParameterTable table(model);
  for (const int group_size : {1, 4}) {
    const std::int64_t shards = padded_elements(table, group_size) / group_size;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const std::int64_t e = size_bytes(element_type(precision));
      const auto persistent = [&](OffloadDevice optimizer, double ratio, Memory memory) {
        TrainingConfig config = test::tiny_config(3);
        config.precision = precision;
        config.offload_param = OffloadDevice::cpu;
        config.offload_optimizer = optimizer;
        config.offload_ratio = ratio;
        config.stage3_param_persistence_threshold = 0;
        return test::held_bytes(build(model, config, group_size), memory);
      };
      using enum OffloadDevice;
      EXPECT_EQ(persistent(none, 1, Memory::host), e * shards);
      EXPECT_EQ(persistent(none, 1, Memory::device), (12 + e) * shards);
      EXPECT_EQ(persistent(cpu, 1, Memory::host), (16 + 2 * e) * shards);
      EXPECT_EQ(persistent(cpu, 1, Memory::device), 0);
      // One sub-group, of which none can stay unless all of it may.
      EXPECT_EQ(persistent(cpu, 0.1, Memory::device), 0);
      EXPECT_EQ(persistent(cpu, 0, Memory::host), 2 * e * shards);
      EXPECT_EQ(persistent(cpu, 0, Memory::device), 16 * shards);
    }
  }
}

TEST(ModelStatesTest, TheFirstSubGroupsStayOnTheDeviceByRatio) {
  const auto updated = [](double ratio, std::int64_t sub_group_size) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_optimizer = OffloadDevice::cpu;
    config.offload_ratio = ratio;
    config.sub_group_size = sub_group_size;
    std::string sides;
    const StepPlan plan = build(test::tiny_gpt2(), config, 2);
    for (const Step& step : plan.cycle.back().steps) {
      if (!std::holds_alternative<op::UpdateParameters>(step.operation)) continue;
      sides += step.stream == Stream::host ? 'h' : 'd';
    }
    return sides;
  };
  EXPECT_EQ(updated(1, 500), "hhhhh");
  EXPECT_EQ(updated(0.5, 500), "ddhhh");
  EXPECT_EQ(updated(0.79, 500), "dhhhh");
  EXPECT_EQ(updated(0.8, 500), "hhhhh");  // 0.2 · 5 is below 1 in DeepSpeed's arithmetic
  EXPECT_EQ(updated(0, 500), "ddddd");
  EXPECT_EQ(updated(0.5, 1'000'000'000), "h");
}

}  // namespace
}  // namespace dstune
