/// Transfers between device, host and disk.

#include <map>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "dstune/plan/step_plan.hpp"
#include "plan_fixtures.hpp"
#include "traffic.hpp"

namespace dstune {
namespace {

using test::build;
using test::copied;
using test::round_up;

struct DiskTraffic {
  std::int64_t read = 0, written = 0, held = 0;  ///< elements; held: of gradients, on the device
};

DiskTraffic disk_traffic(const StepPlan& plan) {
  DiskTraffic traffic;
  for (const auto& read : test::every<op::ReadDisk>(plan)) traffic.read += read.count;
  for (const auto& write : test::every<op::WriteDisk>(plan)) traffic.written += write.count;
  for (const PlannedTensor& tensor : plan.tensors)
    if (std::string_view(tensor.name) == "held gradients") traffic.held = tensor.elements;
  return traffic;
}

TEST(OffloadPlanTest, StatesOnADiskTravelAsInDeepSpeed) {
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

TEST(OffloadPlanTest, PipelinedSwappingRunsBesideTheUpdate) {
  // Compute has waited, when a sub-group is updated, without pipelining for everything that was
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
    const StepPlan plan = build(test::wide_gpt2(), config, 2);
    for (const Step& step : plan.cycle.back().steps) {
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

TEST(OffloadPlanTest, OffloadedGradientsTravelAsInDeepSpeed) {
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

TEST(OffloadPlanTest, OffloadedParametersTravelAsInDeepSpeed) {
  const ModelSpec model = test::tiny_gpt2();
  for (const int group_size : {1, 2}) {
    // A rank sends its shards of all that is gathered to the device.
    const auto gathered = [&](const StepPlan& plan) {
      std::int64_t elements = 0;
      for (const Segment& segment : plan.cycle)
        for (const auto& gather : test::every<op::AllGather>(segment.steps))
          elements += gather.count_per_rank * segment.repeat;
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
    // Parameters beside the optimizer are updated where they are.
    config.offload_optimizer = OffloadDevice::cpu;
    const StepPlan both = build(model, config, group_size);
    config.offload_param = OffloadDevice::none;
    const StepPlan optimizer_alone = build(model, config, group_size);
    EXPECT_EQ(copied(both, Memory::host), copied(optimizer_alone, Memory::host));
    EXPECT_EQ(copied(both, Memory::device),
              copied(optimizer_alone, Memory::device) - shards + copied(plan, Memory::device));
  }
}

}  // namespace
}  // namespace dstune
