#include "dstune/plan/step_plan.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using test::build;
using test::padded_elements;
using test::round_up;
using test::traffic_of;

template <class Op>
std::int64_t count_of(const std::vector<Step>& steps) {
  return std::count_if(steps.begin(), steps.end(),
                       [](const Step& step) { return std::holds_alternative<Op>(step.operation); });
}

TEST(StepPlanTest, AGroupOfOneCommunicatesNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    EXPECT_EQ(traffic_of(build(test::tiny_gpt2(), test::tiny_config(stage), 1)).calls, 0);
  }
}

TEST(StepPlanTest, Stage0CutsItsReductionAtHalfABillion) {
  const StepPlan plan = build(preset("gpt2-xl"), test::tiny_config(0), 2);
  EXPECT_EQ(traffic_of(plan).calls, 4);  // 1,557,611,200 elements
  EXPECT_EQ(traffic_of(plan.cycle.back().steps, 2).calls, 4);
}

TEST(StepPlanTest, FoldsMicroSteps) {
  using enum Segment::Kind;
  const auto kinds = [](std::int64_t accumulation) {
    TrainingConfig config = test::tiny_config(2);
    config.accumulation_steps = accumulation;
    std::vector<std::pair<Segment::Kind, std::int64_t>> result;
    for (const Segment& segment : build(test::tiny_gpt2(), config, 2).cycle)
      result.emplace_back(segment.kind, segment.repeat);
    return result;
  };
  using Kinds = std::vector<std::pair<Segment::Kind, std::int64_t>>;
  EXPECT_EQ(kinds(1), (Kinds{{only_micro, 1}, {update, 1}}));
  EXPECT_EQ(kinds(2), (Kinds{{first_micro, 1}, {last_micro, 1}, {update, 1}}));
  EXPECT_EQ(kinds(9), (Kinds{{first_micro, 1}, {middle_micro, 7}, {last_micro, 1}, {update, 1}}));
}

TEST(StepPlanTest, Stage1CommunicatesInItsLastMicroStepOnly) {
  TrainingConfig config = test::tiny_config(1);
  config.accumulation_steps = 3;
  for (const bool overlap : {false, true}) {
    config.overlap_comm = overlap;
    const StepPlan plan = build(test::tiny_gpt2(), config, 2);
    EXPECT_EQ(traffic_of(plan.cycle[0].steps, 2).calls, 0);
    EXPECT_EQ(traffic_of(plan.cycle[1].steps, 2).calls, 0);
    EXPECT_GT(traffic_of(plan.cycle[2].steps, 2).calls, 1);
  }
}

TEST(StepPlanTest, OneLargeBucketIsReducedAfterAllOfBackward) {
  TrainingConfig config = test::tiny_config(2);
  config.overlap_comm = true;
  config.reduce_bucket_size = 500'000'000;
  const StepPlan plan = build(test::tiny_gpt2(), config, 2);
  const auto& steps = plan.cycle.front().steps;
  ASSERT_EQ(traffic_of(steps, 2).calls, 1);
  const auto reduction = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    return std::holds_alternative<op::AllReduceAverage>(step.operation);
  });
  const auto last_compute = std::find_if(steps.begin(), steps.end(), [](const Step& step) {
    return std::holds_alternative<op::EmbeddingBackward>(step.operation);
  });
  EXPECT_LT(last_compute, reduction);
}

TEST(StepPlanTest, SmallBucketsAreReducedDuringBackward) {
  TrainingConfig config = test::tiny_config(2);
  config.overlap_comm = true;
  const StepPlan plan = build(test::tiny_gpt2(), config, 2);
  const auto& steps = plan.cycle.front().steps;
  bool during = false;
  bool reduced = false;
  for (const Step& step : steps) {
    if (std::holds_alternative<op::AllReduceAverage>(step.operation)) {
      EXPECT_EQ(step.stream, Stream::reduce);
      reduced = true;
    }
    during = during || (reduced && std::holds_alternative<op::AttentionBackward>(step.operation));
  }
  EXPECT_TRUE(during);
}

TEST(StepPlanTest, WithoutOverlapThereIsOneStream) {
  for (int stage = 0; stage <= 3; ++stage) {
    const StepPlan plan = build(test::tiny_gpt2(), test::tiny_config(stage), 3);
    EXPECT_EQ(plan.num_events, 0);
    for (const Segment& segment : plan.cycle)
      for (const Step& step : segment.steps) EXPECT_EQ(step.stream, Stream::compute);
  }
}

TEST(StepPlanTest, ModelStatesAreThoseOfThePublishedFormulas) {
  // P parameters over N ranks in bf16, bytes: 2P + 2P + 12P, 2P + 2P + 12P/N (+ the own part's
  // gradients), 2P + 2P/N + 12P/N, 16P/N.
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  const auto persistent = [&](int stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    std::int64_t bytes = 0;
    for (const PlannedTensor& tensor : build(model, config, 4).tensors)
      if (tensor.persistent) bytes += tensor.elements * size_bytes(tensor.dtype);
    return bytes;
  };
  const std::int64_t part = round_up(p, 8) / 4;
  EXPECT_EQ(persistent(0), 16 * p);
  EXPECT_EQ(persistent(1), 2 * round_up(p, 8) + 2 * p + 14 * part);
  EXPECT_EQ(persistent(2), 2 * round_up(p, 8) + 14 * part);
  const ParameterTable table(model);
  std::int64_t shards = 0;
  for (int unit = 0; unit < table.num_units(); ++unit)
    shards += padded_elements(table, unit, 4) / 4;
  // Norms and biases stay whole: those of a block of 10 · 6 + 30 + 37 elements, the final norm's.
  std::int64_t kept = 0;
  for (const Parameter& parameter : table.all())
    if (parameter.columns == 1) kept += round_up(parameter.elements(), 4);
  EXPECT_EQ(persistent(3), 16 * shards + 2 * kept);
}

TEST(StepPlanTest, OffloadedStatesAreThoseOfDeepSpeed) {
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
    std::int64_t bytes = 0;
    for (const PlannedTensor& tensor : build(model, config, 4).tensors)
      if (tensor.persistent && tensor.memory == memory)
        bytes += tensor.elements * size_bytes(tensor.dtype);
    return bytes;
  };
  const std::int64_t part = round_up(p, 8) / 4;
  std::int64_t shards = 0;
  for (int unit = 0; unit < table.num_units(); ++unit)
    shards += padded_elements(table, unit, 4) / 4;
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

TEST(StepPlanTest, EachOptimizerHasItsStates) {
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

// The table in docs/memory.md.
TEST(StepPlanTest, GradientsHaveTheTypesOfDeepSpeedsOptimizer) {
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
    const auto type_of = [&](View view) {
      return plan.tensors[static_cast<std::size_t>(view.tensor)].dtype;
    };
    SCOPED_TRACE("stage " + std::to_string(row.stage) + " " + std::string(to_text(row.precision)) +
                 (row.fp32_sums ? " with sums in fp32" : ""));
    // But for padding.
    EXPECT_NEAR(static_cast<double>(held(config, 4, Category::gradients).device),
                row.whole * static_cast<double>(p) + row.own * static_cast<double>(p) / 4, 300);
    int reductions = 0;
    for (const Segment& segment : plan.cycle) {
      for (const Step& step : segment.steps) {
        const auto check = [&](View data) {
          ++reductions;
          EXPECT_EQ(type_of(data), element_type(row.averaged));
        };
        if (const auto* whole = std::get_if<op::AllReduceAverage>(&step.operation))
          check(whole->data);
        if (const auto* part = std::get_if<op::ReduceScatterAverage>(&step.operation))
          check(part->in);
        if (const auto* update = std::get_if<op::UpdateParameters>(&step.operation)) {
          EXPECT_EQ(type_of(update->gradient), element_type(row.updated_by));
        }
      }
    }
    EXPECT_EQ(reductions > 1, row.buckets == 1);
    EXPECT_GT(reductions, 0);
  }
}

TEST(StepPlanTest, StatesMayHave16Bits) {
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

TEST(StepPlanTest, OffloadedParametersAreThoseOfDeepSpeed) {
  // Their shards on the host; on the device a master copy in fp32 training, too, unless that is on
  // the host as well.
  const ModelSpec model = test::tiny_gpt2();
  const ParameterTable table(model);
  for (const int group_size : {1, 4}) {
    std::int64_t shards = 0;
    for (int unit = 0; unit < table.num_units(); ++unit)
      shards += padded_elements(table, unit, group_size) / group_size;
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const std::int64_t e = size_bytes(element_type(precision));
      const auto persistent = [&](OffloadDevice optimizer, double ratio, Memory memory) {
        TrainingConfig config = test::tiny_config(3);
        config.precision = precision;
        config.offload_param = OffloadDevice::cpu;
        config.offload_optimizer = optimizer;
        config.offload_ratio = ratio;
        config.stage3_param_persistence_threshold = 0;
        std::int64_t bytes = 0;
        for (const PlannedTensor& tensor : build(model, config, group_size).tensors)
          if (tensor.persistent && tensor.memory == memory)
            bytes += tensor.elements * size_bytes(tensor.dtype);
        return bytes;
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

TEST(StepPlanTest, TheFirstSubGroupsStayOnTheDeviceByRatio) {
  const auto updated = [](double ratio, std::int64_t sub_group_size) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_optimizer = OffloadDevice::cpu;
    config.offload_ratio = ratio;
    config.sub_group_size = sub_group_size;
    std::string sides;
    for (const Step& step : build(test::tiny_gpt2(), config, 2).cycle.back().steps) {
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

struct DiskTraffic {
  std::int64_t read = 0, written = 0, held = 0;  ///< elements; held: of gradients, on the device
};

DiskTraffic disk_traffic(const StepPlan& plan) {
  DiskTraffic traffic;
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      if (const auto* read = std::get_if<op::ReadDisk>(&step.operation))
        traffic.read += read->count;
      if (const auto* write = std::get_if<op::WriteDisk>(&step.operation))
        traffic.written += write->count;
    }
  }
  for (const PlannedTensor& tensor : plan.tensors)
    if (std::string_view(tensor.name) == "held gradients") traffic.held = tensor.elements;
  return traffic;
}

TEST(StepPlanTest, StatesOnADiskTravelAsInDeepSpeed) {
  // Three states of each sub-group of at least 1 MiB are read and written, and of its gradients
  // those of parameters of at least 1 MiB; the others wait on the device.
  const ModelSpec model = test::wide_gpt2();
  const ParameterTable table(model);
  for (const int group_size : {1, 3}) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_optimizer = OffloadDevice::nvme;
    std::int64_t own = 0;
    std::int64_t large = 0;
    for (const Parameter& parameter : table.all()) {
      const std::int64_t shard = (parameter.elements() + group_size - 1) / group_size;
      own += shard;
      if (4 * shard >= 1 << 20) large += shard;
    }
    const StepPlan together = build(model, config, group_size);
    const DiskTraffic traffic = disk_traffic(together);
    EXPECT_EQ(traffic.written, 4 * own - traffic.held);
    EXPECT_EQ(traffic.read, traffic.written);
    // Less than a block at both ends of each of the six.
    EXPECT_GE(traffic.held, own - large);
    EXPECT_LT(traffic.held, own - large + 12 * 1024);
    EXPECT_GE(together.disk.arena_bytes, 16 * own);
    EXPECT_LT(together.disk.arena_bytes, 16 * (own + 1024));

    // Sub-groups below 1 MiB stay on the host.
    config.sub_group_size = 1;
    const StepPlan apart = build(model, config, group_size);
    EXPECT_EQ(disk_traffic(apart).read, 4 * large - disk_traffic(apart).held);
    std::int64_t on_host = 0;
    std::int64_t buffers = 0;
    for (const PlannedTensor& tensor : apart.tensors) {
      if (!tensor.persistent || tensor.memory != Memory::host) continue;
      if (tensor.category == Category::optimizer) on_host += tensor.elements;
      if (std::string_view(tensor.name) == "swap buffer") ++buffers;
    }
    EXPECT_EQ(on_host, 3 * (own - large));
    EXPECT_EQ(buffers, 4);
    // A larger block of the disk leaves more in memory.
    config.disk.block_bytes = 1 << 30;
    EXPECT_EQ(build(model, config, group_size).disk.arena_bytes, 0);
  }
}

TEST(StepPlanTest, SwappingWithoutBuffersIsObjectedTo) {
  TrainingConfig config = test::tiny_config(3);
  config.offload_optimizer = OffloadDevice::nvme;
  config.sub_group_size = 1;  // six sub-groups of the wide model on the disk
  const auto objection = [&] { return swapping_objection(test::wide_gpt2(), config, 2); };
  EXPECT_EQ(objection(), "");
  for (const auto& [read, write, needed] :
       {std::tuple(true, false, 8), std::tuple(false, true, 8), std::tuple(true, true, 12)}) {
    config.disk.pipeline_read = read;
    config.disk.pipeline_write = write;
    config.disk.optimizer_buffers = needed;
    EXPECT_EQ(objection(), "");
    --config.disk.optimizer_buffers;
    EXPECT_NE(objection().find(std::to_string(needed) + " are needed for 6 sub-groups"),
              std::string::npos)
        << objection();
  }
  // Fewer of Adagrad, as many of Lion, which has a moment that it does not use.
  config.optimizer.kind = OptimizerKind::adagrad;
  config.disk.optimizer_buffers = 9;
  EXPECT_EQ(objection(), "");
  config.optimizer.kind = OptimizerKind::lion;
  EXPECT_NE(objection(), "");
  config.optimizer.kind = OptimizerKind::adamw;
  // One needs no more however it is pipelined.
  config.sub_group_size = 1'000'000'000;
  config.disk.optimizer_buffers = 4;
  EXPECT_EQ(objection(), "");
  config.offload_optimizer = OffloadDevice::cpu;
  config.disk.optimizer_buffers = 0;
  EXPECT_EQ(objection(), "");
}

TEST(StepPlanTest, PipelinedSwappingRunsBesideTheUpdate) {
  // What compute has waited for when a sub-group is updated: without pipelining everything that was
  // asked for before; with it the next one's reads, or the last one's writes, go on.
  const auto beside = [](bool read, bool write) {
    TrainingConfig config = test::tiny_config(3);
    config.offload_optimizer = OffloadDevice::nvme;
    config.sub_group_size = 1;
    config.disk.pipeline_read = read;
    config.disk.pipeline_write = write;
    config.disk.optimizer_buffers = 12;
    int reading = 0;
    int writing = 0;
    std::set<int> not_waited;
    std::map<int, Stream> recorded;
    for (const Step& step : build(test::wide_gpt2(), config, 2).cycle.back().steps) {
      if (const auto* record = std::get_if<op::Record>(&step.operation)) {
        if (step.stream == Stream::disk_read || step.stream == Stream::disk_write) {
          recorded[record->event] = step.stream;
          not_waited.insert(record->event);
        }
      } else if (const auto* wait = std::get_if<op::Wait>(&step.operation)) {
        if (step.stream == Stream::compute) not_waited.erase(wait->event);
      } else if (std::holds_alternative<op::UpdateParameters>(step.operation)) {
        for (const int event : not_waited)
          ++(recorded[event] == Stream::disk_read ? reading : writing);
      }
    }
    EXPECT_TRUE(not_waited.empty());
    return std::pair(reading, writing);
  };
  EXPECT_EQ(beside(false, false), std::pair(0, 0));
  EXPECT_GE(beside(true, false).first, 5);
  EXPECT_EQ(beside(true, false).second, 0);
  EXPECT_EQ(beside(false, true).first, 0);
  EXPECT_GE(beside(false, true).second, 5);
  EXPECT_GE(beside(true, true).first, 5);
  EXPECT_GE(beside(true, true).second, 5);
}

/// Elements that a step copies from one memory to the other.
std::int64_t copied(const StepPlan& plan, Memory to) {
  std::int64_t elements = 0;
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto* copy = std::get_if<op::Copy>(&step.operation);
      if (copy == nullptr) continue;
      const auto tensor = static_cast<std::size_t>(copy->y.tensor);
      if (plan.tensors[tensor].memory == to) elements += copy->count * segment.repeat;
    }
  }
  return elements;
}

TEST(StepPlanTest, OffloadedGradientsTravelAsInDeepSpeed) {
  const ModelSpec model = test::tiny_gpt2();
  const std::int64_t p = parameter_count(model);
  for (const std::int64_t steps : {1, 2, 5}) {
    const auto traffic = [&](int stage, Memory to) {
      TrainingConfig config = test::tiny_config(stage);
      config.accumulation_steps = steps;
      config.offload_optimizer = OffloadDevice::cpu;
      return copied(build(model, config, 1), to);
    };
    const std::int64_t padded = round_up(p, 2);  // of the parameters on their way back
    EXPECT_EQ(traffic(1, Memory::host), p);
    EXPECT_EQ(traffic(1, Memory::device), padded);
    // Sums go to the host in every micro-step and come back for the next.
    EXPECT_EQ(traffic(2, Memory::host), steps == 1 ? p : (steps + 1) * p);
    EXPECT_EQ(traffic(2, Memory::device), padded + (steps - 1) * p);
    // Stage 3 fetches what it has sent even where nothing is added to it.
    EXPECT_EQ(traffic(3, Memory::host), (steps + 1) * p);
    EXPECT_EQ(traffic(3, Memory::device), (steps + 1) * p);
  }
}

TEST(StepPlanTest, OffloadedParametersTravelAsInDeepSpeed) {
  const ModelSpec model = test::tiny_gpt2();
  for (const int group_size : {1, 2}) {
    // Of what a rank sends to the device: its shards of all that is gathered.
    const auto gathered = [&](const StepPlan& plan) {
      std::int64_t elements = 0;
      for (const Segment& segment : plan.cycle)
        for (const Step& step : segment.steps)
          if (const auto* gather = std::get_if<op::AllGather>(&step.operation))
            elements += gather->count_per_rank * segment.repeat;
      return elements;
    };
    TrainingConfig config = test::tiny_config(3);
    config.accumulation_steps = 3;
    const StepPlan on_device = build(model, config, 2);
    config.offload_param = OffloadDevice::cpu;
    const StepPlan plan = build(model, config, group_size);
    const auto shards = plan.tensors.front().elements;
    EXPECT_EQ(plan.tensors.front().memory, Memory::host);
    EXPECT_EQ(copied(plan, Memory::host), shards);  // updated
    if (group_size == 2) {
      EXPECT_EQ(gathered(plan), gathered(on_device));
      EXPECT_EQ(copied(plan, Memory::device), gathered(on_device));
    } else {
      EXPECT_EQ(gathered(plan), 0);
      EXPECT_GT(copied(plan, Memory::device), 3 * shards / 2);
    }
    // With the optimizer they are updated where they are.
    config.offload_optimizer = OffloadDevice::cpu;
    const StepPlan both = build(model, config, group_size);
    config.offload_param = OffloadDevice::none;
    const StepPlan optimizer_alone = build(model, config, group_size);
    EXPECT_EQ(copied(both, Memory::host), copied(optimizer_alone, Memory::host));
    EXPECT_EQ(copied(both, Memory::device),
              copied(optimizer_alone, Memory::device) - shards + copied(plan, Memory::device));
  }
}

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

TEST(StepPlanTest, ALayerKeepsThePublishedBytes) {
  const std::int64_t tokens = 2 * 128;
  const std::int64_t h = 256;
  const std::int64_t a = 4;
  const auto of_a_layer = [](ModelFamily family, Recompute recompute) {
    return activations_at_peak(6, family, recompute) - activations_at_peak(5, family, recompute);
  };
  EXPECT_EQ(of_a_layer(ModelFamily::gpt2, Recompute::none), tokens * (32 * h + 4 * a + 16));
  // 12h + 4gh + 6f + 4a + 8 with g = kv heads / heads = 1/2 and f = 1024.
  EXPECT_EQ(of_a_layer(ModelFamily::llama, Recompute::none),
            tokens * (12 * h + 2 * h + 6 * 1024 + 4 * a + 8));
  EXPECT_EQ(of_a_layer(ModelFamily::opt, Recompute::none), tokens * (32 * h + 4 * a + 16));
  EXPECT_EQ(of_a_layer(ModelFamily::bert, Recompute::none), tokens * (32 * h + 4 * a + 16));
  EXPECT_EQ(of_a_layer(ModelFamily::gpt_neox, Recompute::none), tokens * (30 * h + 4 * a + 16));
  // 2h(1 + g) + 4a(1 + g) more.
  EXPECT_EQ(of_a_layer(ModelFamily::qwen3, Recompute::none),
            tokens * (12 * h + 2 * h + 6 * 1024 + 4 * a + 8 + 3 * h + 6 * a));
  using enum ModelFamily;
  for (const ModelFamily family : {gpt2, llama, opt, bert, gpt_neox, qwen3})
    EXPECT_EQ(of_a_layer(family, Recompute::block), tokens * 2 * h) << to_text(family);
}

TEST(StepPlanTest, SelectiveRecomputeKeepsProductsAndAttention) {
  using enum ModelFamily;
  const std::int64_t tokens = 2 * 128;
  const std::int64_t h = 256;
  const std::int64_t a = 4;
  const auto of_a_layer = [](ModelFamily family) {
    return activations_at_peak(6, family, Recompute::selective) -
           activations_at_peak(5, family, Recompute::selective);
  };
  EXPECT_EQ(of_a_layer(gpt2), tokens * (20 * h + 4 * a));
  EXPECT_EQ(of_a_layer(opt), tokens * (20 * h + 4 * a));
  EXPECT_EQ(of_a_layer(gpt_neox), tokens * (18 * h + 4 * a));
  // The sum before the last norm stays, and its statistics.
  EXPECT_EQ(of_a_layer(bert), tokens * (22 * h + 4 * a + 8));
  // 8h + 4gh + 4f + 4a; the raw product in the place of q and k, whose norms are made again.
  EXPECT_EQ(of_a_layer(llama), tokens * (8 * h + 2 * h + 4 * 1024 + 4 * a));
  EXPECT_EQ(of_a_layer(qwen3), of_a_layer(llama));
}

TEST(StepPlanTest, LayersHaveTheirWindows) {
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

TEST(StepPlanTest, LogitsComeInChunksOfBoundedSize) {
  TrainingConfig config = test::tiny_config(0);
  config.sequence_length = 1024;
  const StepPlan plan = build(preset("gpt2"), config, 1);
  std::int64_t rows = 0;
  for (const Step& step : plan.cycle.front().steps) {
    if (const auto* loss = std::get_if<op::CrossEntropy>(&step.operation)) {
      EXPECT_EQ(loss->first_row, rows);
      EXPECT_LE(loss->rows * 50257 * 4, std::int64_t{64} << 20);
      EXPECT_FLOAT_EQ(loss->scale, 1.0F / 2048.0F);
      rows += loss->rows;
    }
  }
  EXPECT_EQ(rows, 2048);
}

TEST(StepPlanTest, ClippingIsLeftOutWhereItIsOff) {
  TrainingConfig config = test::tiny_config(1);
  const auto update = [&] { return build(test::tiny_gpt2(), config, 2).cycle.back().steps; };
  EXPECT_EQ(count_of<op::AccumulateSquares>(update()), 1);
  EXPECT_EQ(count_of<op::ClipFactor>(update()), 1);
  config.gradient_clipping = 0;
  EXPECT_EQ(count_of<op::AccumulateSquares>(update()), 0);
  EXPECT_EQ(count_of<op::ClipFactor>(update()), 0);
  EXPECT_EQ(count_of<op::UpdateParameters>(update()), 1);
}

TEST(StepPlanTest, Fp16PutsBehindAGuardWhatASkippedStepLeavesOut) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const double clipping : {0.0, 1.0}) {
      TrainingConfig config = test::tiny_config(stage);
      config.precision = Precision::fp16;
      config.gradient_clipping = clipping;
      const StepPlan plan = build(test::tiny_gpt2(), config, 2);
      ASSERT_EQ(plan.cycle.size(), 3U);
      EXPECT_EQ(plan.cycle[1].kind, Segment::Kind::update);
      EXPECT_EQ(plan.cycle[2].kind, Segment::Kind::guarded_update);
      const std::vector<Step>& always = plan.cycle[1].steps;
      const std::vector<Step>& guarded = plan.cycle[2].steps;
      EXPECT_EQ(count_of<op::FinishLoss>(always), 1);
      EXPECT_EQ(count_of<op::AccumulateSquares>(always), 1);
      EXPECT_TRUE(std::holds_alternative<op::CheckOverflow>(always.back().operation));
      EXPECT_EQ(std::get<op::CheckOverflow>(always.back().operation).over_group, stage > 0);
      EXPECT_EQ(count_of<op::ClipFactor>(guarded), clipping > 0 ? 1 : 0);
      EXPECT_EQ(count_of<op::UpdateParameters>(guarded), 1);
      // The parameters of stages 1 and 2 at once; stage 3's norms and biases, which stay whole.
      constexpr std::array gathers{0, 1, 1, 3 * 8 + 2};
      EXPECT_EQ(count_of<op::AllGather>(guarded), gathers[static_cast<std::size_t>(stage)]);
      EXPECT_EQ(count_of<op::UpdateParameters>(always) + count_of<op::AllGather>(always), 0);
    }
  }
}

TEST(StepPlanTest, Fp16NeedsTheMemoryOfBf16) {
  for (int stage = 0; stage <= 3; ++stage) {
    TrainingConfig config = test::tiny_config(stage);
    config.precision = Precision::bf16;
    const MemoryPlan bf16 = build(test::tiny_llama(), config, 4).memory;
    config.precision = Precision::fp16;
    const MemoryPlan fp16 = build(test::tiny_llama(), config, 4).memory;
    EXPECT_EQ(fp16.arena_bytes, bf16.arena_bytes);
    EXPECT_EQ(fp16.categories_at_peak, bf16.categories_at_peak);
  }
}

TEST(StepPlanTest, RecomputeRunsForwardAgain) {
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
  // Of a block's four products the last one's result is not needed again.
  EXPECT_EQ(count_of<op::Matmul>(selective), count_of<op::Matmul>(none));
  EXPECT_EQ(count_of<op::Matmul>(block), count_of<op::Matmul>(none) + 3 * 3);
  EXPECT_EQ(count_of<op::ActivationForward>(none), 3);
  EXPECT_EQ(count_of<op::NormForward>(none), 7);
  for (const auto* again : {&selective, &block}) {
    EXPECT_EQ(count_of<op::ActivationForward>(*again), 6);
    EXPECT_EQ(count_of<op::NormForward>(*again), 13);
  }
}

TEST(StepPlanTest, CheckpointsWaitInHostMemory) {
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

TEST(StepPlanTest, EveryInitialWeightIsDrawnOnceInTheGroup) {
  for (int stage = 0; stage <= 3; ++stage) {
    std::int64_t drawn = 0;
    for (int rank = 0; rank < 4; ++rank) {
      for (const Step& step :
           build(test::tiny_gpt2(), test::tiny_config(stage), 4, rank).initialize) {
        if (const auto* fill = std::get_if<op::FillNormal>(&step.operation)) drawn += fill->count;
      }
    }
    std::int64_t normal = 0;
    const ParameterTable table(test::tiny_gpt2());
    for (const Parameter& parameter : table.all())
      if (parameter.initial == InitialValue::normal) normal += parameter.elements();
    EXPECT_EQ(drawn, stage == 3 ? normal : 4 * normal);
  }
}

TEST(StepPlanTest, RefusesWhatValidationShouldHaveRefused) {
  TrainingConfig config = test::tiny_config(0);
  EXPECT_THROW(build(test::tiny_gpt2(), config, 2, 2), LogicError);
  config.sequence_length = 20;
  EXPECT_THROW(build(test::tiny_gpt2(), config, 1), LogicError);
  EXPECT_NO_THROW(build(test::tiny_llama(), config, 1));
  config.zero_stage = 4;
  EXPECT_THROW(build(test::tiny_llama(), config, 1), LogicError);
}

}  // namespace
}  // namespace dstune
