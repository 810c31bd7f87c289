/// Effects of each switch of a release of DeepSpeed on a plan and to the target's memory: figures
/// by formula, operations and traffic.

#include <algorithm>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/core/deepspeed_switches.hpp"
#include "dstune/core/deepspeed_version.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/plan/memory.hpp"
#include "plan_fixtures.hpp"
#include "replay.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using enum Memory;

constexpr int ranks = 2;
constexpr std::int64_t alignment = 256;

const ModelSpec& model() {
  static const ModelSpec tiny = test::tiny_gpt2();
  return tiny;
}
std::int64_t own_elements() {
  return test::round_up(parameter_count(model()), 2 * ranks) / ranks;
}
std::int64_t padded(std::int64_t bytes) {
  return test::round_up(bytes, alignment);
}

TrainingConfig in_mixed(int stage, std::int64_t accumulation_steps = 1,
                        Precision precision = Precision::bf16) {
  TrainingConfig config = test::tiny_config(stage);
  config.precision = precision;
  config.accumulation_steps = accumulation_steps;
  return config;
}

/// A configuration with the switch off and on.
struct Pair {
  TrainingConfig off, on;
};
Pair with(bool DeepSpeedSwitches::*member, const TrainingConfig& config) {
  Pair pair{config, config};
  pair.off.switches.*member = false;
  pair.on.switches.*member = true;
  return pair;
}

/// Sound on every rank: each read against its write, memory as the plan has it.
StepPlan sound(const TrainingConfig& config) {
  for (int rank = 0; rank < ranks; ++rank) {
    const test::Replay replay(test::build(model(), config, ranks, rank));
    for (const std::string& problem : replay.problems()) ADD_FAILURE() << problem;
  }
  return test::build(model(), config, ranks);
}

std::vector<PlannedTensor> tensors_of(const StepPlan& plan, std::string_view name) {
  std::vector<PlannedTensor> found;
  std::ranges::copy_if(plan.tensors, std::back_inserter(found),
                       [&](const PlannedTensor& tensor) { return tensor.name == name; });
  return found;
}
std::int64_t bytes_of(const StepPlan& plan, std::string_view name, Memory memory = device) {
  std::int64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors_of(plan, name))
    if (tensor.memory == memory) bytes += tensor.padded_bytes;
  return bytes;
}
/// Elements of the largest bucket of a type.
std::int64_t largest_bucket(const StepPlan& plan, DType type) {
  std::int64_t largest = 0;
  for (const PlannedTensor& tensor : tensors_of(plan, "bucket"))
    if (tensor.dtype == type) largest = std::max(largest, tensor.elements);
  return largest;
}
bool is_persistent(const StepPlan& plan, std::string_view name) {
  return std::ranges::any_of(tensors_of(plan, name), &PlannedTensor::persistent);
}
template <class Op>
std::int64_t operations(const StepPlan& plan) {
  std::int64_t number = 0;
  for (const Segment& segment : plan.cycle)
    number += test::count_of<Op>(segment.steps) * segment.repeat;
  return number;
}
void expect_same_traffic(const StepPlan& one, const StepPlan& other) {
  EXPECT_EQ(test::traffic_of(one), test::traffic_of(other));
}

TargetMemory target(const TrainingConfig& config, int group_size = ranks) {
  return target_memory(model(), config, group_size, TargetSpec{});
}
/// Bytes that the target holds more with the switch on.
std::int64_t more(const Pair& pair, const char* instant) {
  return target(pair.on).instants.at(instant) - target(pair.off).instants.at(instant);
}

TEST(SwitchedPlanTest, Stage2SumsInFp32) {
  // Without the switch, nothing asks for such sums there.
  for (const std::int64_t steps : {1, 3}) {
    TrainingConfig config = in_mixed(2, steps);
    const StepPlan rounded = sound(config);
    const std::int64_t in_16_bits = target(config).instants.at("update");
    config.switches.fp32_sums_at_stage_2 = true;
    config.fp32_gradient_accumulation = true;
    const StepPlan summed = sound(config);
    EXPECT_EQ(bytes_of(rounded, "own gradients"), padded(2 * own_elements()));
    EXPECT_EQ(bytes_of(summed, "own gradients"), padded(4 * own_elements()));
    EXPECT_EQ(bytes_of(summed, "bucket"), bytes_of(rounded, "bucket"));
    EXPECT_EQ(operations<op::Add>(summed), operations<op::Add>(rounded));
    expect_same_traffic(summed, rounded);
    // The target reads its partition as it is: beside it there is no flat copy, nor one of that in
    // fp32, but the norm's in double precision, of the table.
    const std::int64_t own = (parameter_count(model()) + 1) / ranks;
    EXPECT_EQ(target(config).instants.at("update"),
              2 * parameter_count(model()) + (12 + 4) * own +
                  8 * model().vocab_size * model().hidden_size);
    EXPECT_GT(in_16_bits, target(config).instants.at("update"));
  }
}

TEST(SwitchedPlanTest, Stage1AveragesFp32SumsInFp32Buckets) {
  for (const bool overlap : {false, true}) {
    TrainingConfig config = in_mixed(1, 2, Precision::fp16);
    config.fp32_gradient_accumulation = true;
    config.overlap_comm = overlap;
    const Pair pair = with(&DeepSpeedSwitches::fp32_sums_are_averaged, config);
    const StepPlan off = sound(pair.off), on = sound(pair.on);
    EXPECT_EQ(largest_bucket(on, DType::f32), largest_bucket(off, DType::f16));
    EXPECT_EQ(largest_bucket(off, DType::f32), 0);
    EXPECT_TRUE(tensors_of(off, "sent gradients").empty());
    EXPECT_FALSE(tensors_of(on, "sent gradients").empty());
    expect_same_traffic(on, off);
    // Numbers are sent in 16 bits all the same.
    for (const auto& reduce : test::every<op::AllReduceAverage>(on))
      EXPECT_EQ(test::tensor_of(on, reduce.data).dtype, DType::f16);
    const std::int64_t bucket = config.reduce_bucket_size * (overlap ? 2 : 1);
    EXPECT_EQ(more(pair, "loss"), 2 * bucket);
    EXPECT_EQ(more(pair, "layers"), 2 * bucket);
  }
}

TEST(SwitchedPlanTest, OffloadedFp32SumsStayOnTheDevice) {
  for (const int stage : {1, 2}) {
    TrainingConfig config = in_mixed(stage, 3);
    config.offload_optimizer = OffloadDevice::cpu;
    config.switches.fp32_sums_at_stage_2 = config.switches.fp32_sums_are_averaged = true;
    config.fp32_gradient_accumulation = stage == 1;
    const StepPlan off = sound(config);
    config.fp32_gradient_accumulation = true;
    config.switches.fp32_sums_stay_on_device = true;
    const StepPlan on = sound(config);
    EXPECT_EQ(bytes_of(on, "own sums"), padded(4 * own_elements()));
    EXPECT_EQ(bytes_of(off, "own sums"), 0);
    EXPECT_EQ(bytes_of(on, "accumulated gradients", host), 0);
    expect_same_traffic(on, off);
    // The own part once, and nothing comes back but the parameters.
    EXPECT_EQ(test::copied(on, host), own_elements());
    EXPECT_EQ(test::copied(on, device), own_elements());
    if (stage == 2) {
      EXPECT_GT(test::copied(off, host), test::copied(on, host));
    }
  }
}

TEST(SwitchedPlanTest, OffloadWaitsForCopies) {
  // Some parameters are larger than a bucket: they are cloned.
  for (const int stage : {1, 2}) {
    TrainingConfig config = in_mixed(stage, stage);
    config.offload_optimizer = OffloadDevice::cpu;
    config.reduce_bucket_size = 300;
    const Pair pair = with(&DeepSpeedSwitches::offload_waits_for_copies, config);
    const StepPlan off = sound(pair.off), on = sound(pair.on);
    std::int64_t cloned = 0;
    const ParameterTable table(model());
    for (const Parameter& parameter : table.all())
      if (parameter.elements() > config.reduce_bucket_size)
        cloned += padded(2 * parameter.elements());
    EXPECT_GT(cloned, 0);
    // In each segment of micro-steps.
    const auto segments = static_cast<std::int64_t>(stage == 1 ? 1 : off.cycle.size() - 1);
    EXPECT_EQ(bytes_of(on, "bucket") - bytes_of(off, "bucket"), segments * cloned);
    expect_same_traffic(on, off);
    EXPECT_EQ(operations<op::Copy>(on), operations<op::Copy>(off));
  }
  // Compute waits between the copies of a bucket, which else goes on beside it.
  TrainingConfig config = in_mixed(2, 2);
  config.offload_optimizer = OffloadDevice::cpu;
  config.overlap_comm = true;
  const Pair pair = with(&DeepSpeedSwitches::offload_waits_for_copies, config);
  const auto waits = [](const StepPlan& plan) {
    std::int64_t number = 0;
    for (const Segment& segment : plan.cycle)
      for (const Step& step : segment.steps)
        if (step.stream == Stream::compute && std::holds_alternative<op::Wait>(step.operation))
          ++number;
    return number;
  };
  EXPECT_GT(waits(sound(pair.on)), waits(sound(pair.off)));
}

TEST(SwitchedPlanTest, AnImmediateUpdateFreesGradients) {
  TrainingConfig config = in_mixed(1, 2);
  config.fp32_gradient_accumulation = config.immediate_grad_update = true;
  const Pair pair = with(&DeepSpeedSwitches::immediate_update_frees_gradients, config);
  const StepPlan off = sound(pair.off), on = sound(pair.on);
  const std::int64_t whole = 2 * parameter_count(model());
  EXPECT_EQ(bytes_of(off, "gradients"), padded(whole));
  EXPECT_EQ(bytes_of(on, "gradients"), 0);
  EXPECT_EQ(tensors_of(on, "unit gradients").size(), 2 * ParameterTable(model()).num_units());
  expect_same_traffic(on, off);
  EXPECT_EQ(more(pair, "loss"), -whole);
  EXPECT_EQ(more(pair, "update"), -whole);
}

TEST(SwitchedPlanTest, Stage0PartitionsInBf16) {
  TrainingConfig config = in_mixed(0, 2);
  const StepPlan whole = sound(config);
  config.fp32_gradient_accumulation = true;  // as training_config() decides
  const StepPlan parts = sound(config);
  EXPECT_EQ(bytes_of(whole, "master"), padded(4 * parameter_count(model())));
  EXPECT_EQ(bytes_of(parts, "master"), padded(4 * own_elements()));
  EXPECT_EQ(test::traffic_of(whole).all_gather, 0);
  EXPECT_EQ(test::traffic_of(parts).all_gather, ranks * own_elements());
  EXPECT_EQ(test::traffic_of(parts).all_reduce, test::traffic_of(whole).all_reduce);
  TrainingConfig stage_1 = config;
  stage_1.zero_stage = 1;
  EXPECT_EQ(target(config).instants, target(stage_1).instants);
  EXPECT_EQ(parts.memory.arena_bytes, sound(stage_1).memory.arena_bytes);
}

TEST(SwitchedPlanTest, TwinFlowKeepsOneEndOfTheSubGroupsOnTheHost) {
  TrainingConfig config = in_mixed(3);
  config.offload_optimizer = OffloadDevice::cpu;
  config.sub_group_size = 300;
  config.offload_ratio = 0.3;
  const Pair pair = with(&DeepSpeedSwitches::twin_flow_keeps_last_part, config);
  const auto updates = [](const StepPlan& plan) {
    std::vector<bool> on_host;
    for (const Step& step : plan.cycle.back().steps)
      if (std::holds_alternative<op::UpdateParameters>(step.operation))
        on_host.push_back(step.stream == Stream::host);
    return on_host;
  };
  const std::vector<bool> first = updates(sound(pair.off)), last = updates(sound(pair.on));
  ASSERT_EQ(first.size(), last.size());
  ASSERT_GE(first.size(), 4U);
  const auto all = static_cast<double>(first.size());
  const auto on_device = static_cast<std::size_t>((1.0 - 0.3) * all);
  const auto on_host = static_cast<std::size_t>(0.3 * all);
  for (std::size_t index = 0; index < first.size(); ++index) {
    EXPECT_EQ(first[index], index < on_host) << index;
    EXPECT_EQ(last[index], index >= on_device) << index;
  }
}

TEST(SwitchedPlanTest, ParametersReturnByABufferThatIsAlwaysThere) {
  for (const int stage : {1, 2}) {
    TrainingConfig config = in_mixed(stage, 2);
    config.offload_optimizer = OffloadDevice::cpu;
    const Pair pair = with(&DeepSpeedSwitches::parameters_return_by_buffer, config);
    const StepPlan off = sound(pair.off), on = sound(pair.on);
    EXPECT_TRUE(is_persistent(on, "updated parameters"));
    EXPECT_FALSE(is_persistent(off, "updated parameters"));
    EXPECT_EQ(bytes_of(on, "updated parameters", host), padded(2 * own_elements()));
    EXPECT_EQ(test::copied(on, device), test::copied(off, device));
    expect_same_traffic(on, off);
  }
}

/// Calls of the network for what the host decides of all gradients, with the passes over them and
/// the factors that clip them.
struct Examined {
  std::int64_t passes = 0, factors = 0;
  double calls = 0;
  bool operator==(const Examined&) const = default;
};
Examined examined(const TrainingConfig& config) {
  const StepPlan plan = sound(config);
  Examined all{operations<op::AccumulateSquares>(plan), operations<op::ClipFactor>(plan), 0};
  for (const Segment& segment : plan.cycle) {
    Overheads counted = segment.overheads;
    all.calls += static_cast<double>(segment.repeat) * of(counted, Overhead::all_reduce_call);
    all.calls -=
        static_cast<double>(segment.repeat * test::count_of<op::AllReduceAverage>(segment.steps));
  }
  return all;
}

TEST(SwitchedPlanTest, WithoutANormAndACheckNoPassIsMade) {
  for (const int stage : {1, 2}) {
    TrainingConfig config = in_mixed(stage);
    const Examined once{1, 1, 1}, to_check{1, 0, 1};
    EXPECT_EQ(examined(config), once);
    config.gradient_clipping = 0;  // the norm is known all the same
    EXPECT_EQ(examined(config), once);
    config.computes_gradient_norm = false;
    EXPECT_EQ(examined(config), once);  // for the check
    config.checks_overflow = false;
    EXPECT_EQ(examined(config), Examined());
    config.precision = Precision::fp16;  // always checked
    EXPECT_EQ(examined(config), to_check);
    config.precision = Precision::fp32;
    EXPECT_EQ(examined(config), Examined());
  }
}

TEST(SwitchedPlanTest, AlignedParametersBeginAt16Bytes) {
  for (const int stage : {1, 2}) {
    for (const bool round_robin : {false, true}) {
      TrainingConfig config = in_mixed(stage);
      config.round_robin_gradients = round_robin;
      const StepPlan dense = sound(config);
      config.aligns_parameters = true;
      const StepPlan aligned = sound(config);
      std::int64_t end = 0;
      const ParameterTable table(model());
      for (int round = 0; round < (round_robin ? ranks : 1); ++round) {
        const int stride = round_robin ? ranks : 1;
        for (int index = round; index < static_cast<int>(table.all().size()); index += stride)
          end = test::round_up(end, 8) + table.all()[static_cast<std::size_t>(index)].elements();
      }
      const std::int64_t resident = test::round_up(end, 2 * ranks);
      EXPECT_GT(resident, ranks * own_elements());
      EXPECT_EQ(bytes_of(aligned, "parameters"), padded(2 * resident));
      EXPECT_EQ(bytes_of(aligned, "master"), padded(4 * resident / ranks));
      EXPECT_EQ(test::traffic_of(aligned).all_gather, resident);
      EXPECT_EQ(test::traffic_of(aligned).all_reduce, test::traffic_of(dense).all_reduce);
      EXPECT_GT(target(config).parts.at("optimizer"), 12 * parameter_count(model()) / ranks);
    }
  }
}

TEST(SwitchedPlanTest, EveryReleasesPlansAreSound) {
  for (const Version& version :
       {Version{0, 16, 9}, Version{0, 17, 6}, Version{0, 19, 6}, Version{0, 19, 8}}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (int number = 0; number < 32; ++number) {
        TrainingConfig config =
            in_mixed(stage, 1 + number % 3, number % 2 == 0 ? Precision::bf16 : Precision::fp16);
        config.switches = switches_of(version);
        config.overlap_comm = number % 4 < 2;
        config.fp32_gradient_accumulation =
            stage == 1 || stage == 3 || (stage == 2 && config.switches.fp32_sums_at_stage_2) ||
            (stage == 0 && config.switches.stage_0_partitions_bf16 &&
             config.precision == Precision::bf16);
        config.immediate_grad_update = is_bf16_optimizer(config) && number % 3 == 0;
        config.aligns_parameters = number % 5 == 0;
        config.contiguous_gradients = number % 7 != 0;
        config.round_robin_gradients = number % 11 == 0;
        if (number % 8 < 4) config.offload_optimizer = OffloadDevice::cpu;
        config.reduce_bucket_size = number % 3 == 0 ? 300 : 1'000'000;
        if (number % 13 == 0) config.communication_data_type = CommunicationType::fp32;
        sound(config);
      }
    }
  }
}

}  // namespace
}  // namespace dstune
