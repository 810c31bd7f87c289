/// A device that works late, with memory of its own, gives the losses of the processor bit for bit:
/// the plan's events, the host's waits and what is copied are enough, whatever order they leave.

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "shuffled_training.hpp"

namespace dstune {
namespace {

using test::Golden;

struct Variant {
  std::string name;
  std::function<void(TrainingConfig&)> change;
  int least_stage = 0;
};

std::vector<Variant> variants() {
  const auto offload = [](TrainingConfig& c) {
    c.offload_optimizer = OffloadDevice::cpu;
    c.reduce_bucket_size = 20'000;
  };
  const auto gather_ahead = [](TrainingConfig& c) {
    c.stage3_param_persistence_threshold = 100;
    c.stage3_prefetch_bucket_size = 9'000;
    c.stage3_max_live_parameters = 30'000;
    c.stage3_max_reuse_distance = 10'000;
  };
  return {
      {"as it is", [](auto&) {}},
      {"small buckets", [](auto& c) { c.reduce_bucket_size = 5'000; }},
      {"buckets of one", [](auto& c) { c.reduce_bucket_size = 1; }},
      {"clipping", [](auto& c) { c.gradient_clipping = 0.05; }},
      {"selective", [](auto& c) { c.recompute = Recompute::selective; }},
      {"blocks again", [](auto& c) { c.recompute = Recompute::block; }},
      {"from host memory",
       [](auto& c) {
         c.recompute = Recompute::block;
         c.cpu_checkpointing = true;
       }},
      {"waiting at boundaries",
       [](auto& c) {
         c.recompute = Recompute::block;
         c.cpu_checkpointing = c.synchronize_checkpoint_boundary = true;
         c.reduce_bucket_size = 20'000;
       }},
      {"in fp32",
       [](auto& c) {
         c.communication_data_type = CommunicationType::fp32;
         c.reduce_bucket_size = 20'000;
       },
       1},
      {"copied buckets",
       [](auto& c) {
         c.contiguous_gradients = false;
         c.reduce_bucket_size = 20'000;
       },
       1},
      {"optimizer on the host", offload, 1},
      {"optimizer on the host, clipping",
       [=](auto& c) {
         offload(c);
         c.gradient_clipping = 0.05;
       },
       1},
      {"gathered ahead", gather_ahead, 3},
      {"by all-reduce",
       [=](auto& c) {
         gather_ahead(c);
         c.stage3_use_all_reduce_for_fetch_params = true;
       },
       3},
      {"all on the host",
       [=](auto& c) {
         offload(c);
         gather_ahead(c);
         c.offload_param = OffloadDevice::cpu;
       },
       3},
      {"parameters on the host",
       [=](auto& c) {
         gather_ahead(c);
         c.offload_param = OffloadDevice::cpu;
       },
       3},
      {"half of the optimizer on the host",
       [=](auto& c) {
         offload(c);
         c.offload_ratio = 0.5;
         c.sub_group_size = 2'000;
         c.gradient_clipping = 0.05;
       },
       3},
      {"a second partition",
       [=](auto& c) {
         gather_ahead(c);
         c.zero_hpz_partition_size = 2;
         c.offload_param = OffloadDevice::cpu;
       },
       3},
      {"quantized weights",
       [=](auto& c) {
         gather_ahead(c);
         c.zero_quantized_weights = true;
       },
       3},
  };
}

struct Case {
  const char* model;
  int stage;
  Precision precision;
  std::int64_t accumulation_steps;
  LossScale loss_scale = {};
};

std::vector<Case> cases() {
  const LossScale skipping{.initial_power = 24, .hysteresis = 1};
  std::vector<Case> result;
  for (const int stage : {0, 1, 2, 3})
    result.push_back({"llama", stage, Precision::bf16, stage == 1 ? 1 : 3});
  result.push_back({"gpt2", 1, Precision::fp16, 3, skipping});
  result.push_back({"gpt2", 2, Precision::fp32, 1});
  result.push_back({"gpt2", 3, Precision::fp16, 1, skipping});
  return result;
}

/// Every variant that a stage knows.
std::vector<std::pair<Case, Variant>> trainings() {
  std::vector<std::pair<Case, Variant>> result;
  for (const Case& each : cases()) {
    for (const Variant& variant : variants())
      if (variant.least_stage <= each.stage) result.emplace_back(each, variant);
  }
  return result;
}

class ShuffledTest : public test::ShuffledTraining,
                     public testing::WithParamInterface<std::pair<Case, Variant>> {};

TEST_P(ShuffledTest, HasTheLossesOfTheProcessor) {
  const auto& [model_case, variant] = GetParam();
  const Golden golden(model_case.model);
  for (const bool overlap : {false, true}) {
    TrainingConfig config =
        golden.on(job().size(), model_case.stage, model_case.accumulation_steps);
    config.precision = model_case.precision;
    config.loss_scale = model_case.loss_scale;
    config.overlap_comm = overlap;
    variant.change(config);
    if (!partition_objection(config, job().size()).empty() ||
        !model_objection(golden.model, config, job().size()).empty())
      GTEST_SKIP() << "DeepSpeed fails on so many ranks";
    SCOPED_TRACE(overlap ? "overlapping" : "one after another");
    // Any number; an odd one of the two, not always the same.
    const std::uint64_t order =
        variant.name.size() + static_cast<std::uint64_t>(model_case.stage) + (overlap ? 1 : 0);
    expect_losses_of_processor(golden.model, config, golden.seed, order);
  }
}

std::string name_of(const testing::TestParamInfo<std::pair<Case, Variant>>& training) {
  const auto& [model_case, variant] = training.param;
  std::string name = std::string(model_case.model) + "_" +
                     std::string(to_text(model_case.precision)) + "_stage" +
                     std::to_string(model_case.stage) + "_" + variant.name;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, ShuffledTest, testing::ValuesIn(trainings()), name_of);

/// Micro-steps that are recorded once and asked for as a whole.
class ShuffledRecordingTest : public test::ShuffledTraining {
 protected:
  /// How many recordings, and how many micro-steps as one.
  struct Counts {
    std::int64_t recorded, replayed;
    bool operator==(const Counts&) const = default;
    friend void PrintTo(const Counts& counts, std::ostream* out) {
      *out << counts.recorded << " recorded, " << counts.replayed << " replayed";
    }
  };
  /// Expects the processor's losses of so many steps.
  Counts run_on_both(const TrainingConfig& config, int num_steps) {
    const StepPlan plan = plan_of(golden_.model, config);
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice cpu(256 << 20, 1);
    Executor processors(plan, cpu, *group, golden_.seed);
    const Course expected = run(processors, num_steps);
    test::ShuffledQueues& queues = device_.shuffled_queues();
    test::ShuffledGroup shuffled(*group, queues);
    Executor executor(plan, device_, shuffled, golden_.seed);
    EXPECT_EQ(run(executor, num_steps), expected);
    return {queues.recorded(), queues.replayed()};
  }

  Golden golden_{"gpt2"};
  test::ShuffledDevice device_{256 << 20, 5};
};

TEST_F(ShuffledRecordingTest, IsMadeOnceASegment) {
  const TrainingConfig config = golden_.on(job().size(), 1, 3);
  ASSERT_GE(config.accumulation_steps, 3);
  // The first micro-step, those that add to its gradients, and where these are reduced the last.
  const std::int64_t recorded = job().size() == 1 ? 2 : 3;
  EXPECT_EQ(run_on_both(config, 5), (Counts{recorded, 3 * config.accumulation_steps}));
}

TEST_F(ShuffledRecordingTest, IsMadeAnewForAnotherLossScale) {
  TrainingConfig config = golden_.on(job().size(), 1, 1);
  config.precision = Precision::fp16;
  config.loss_scale = {.initial_power = 4, .window = 3};
  // In steps 2, 4 and 7.
  EXPECT_EQ(run_on_both(config, 8), (Counts{3, 6}));
}

TEST_F(ShuffledRecordingTest, IsNobodysWhereARankRefuses) {
  const int refusing = job().size() - 1;
  if (job().rank() == refusing) device_.shuffled_queues().refuse_recordings();
  // It was tried.
  EXPECT_EQ(run_on_both(golden_.on(job().size(), 1, 2), 5), (Counts{1, 0}));
}

/// Clipping by a norm that the host need not know.
class ShuffledClippingTest : public test::ShuffledTraining {
 protected:
  static constexpr double limit = 0.05;

  struct Seen {
    std::vector<double> norms;
    std::int64_t host_waits;
  };
  Seen run_shuffled(const TrainingConfig& config) {
    const StepPlan plan = plan_of(golden_.model, config);
    const std::unique_ptr<ProcessGroup> group = job().join();
    test::ShuffledDevice device(256 << 20, 7);
    test::ShuffledGroup shuffled(*group, device.shuffled_queues());
    return {norms(plan, device, shuffled), device.shuffled_queues().host_waits()};
  }
  std::vector<double> norms_of_processor(const TrainingConfig& config) {
    const StepPlan plan = plan_of(golden_.model, config);
    const std::unique_ptr<ProcessGroup> group = job().join();
    CpuDevice device(256 << 20, 1);
    return norms(plan, device, *group);
  }
  /// Host waits that clipping costs.
  std::int64_t waits_for_clipping(TrainingConfig config) {
    config.gradient_clipping = limit;
    const Seen clipped = run_shuffled(config);
    EXPECT_EQ(clipped.norms, norms_of_processor(config));
    EXPECT_GT(clipped.norms.front(), limit);
    config.gradient_clipping = 0;
    return clipped.host_waits - run_shuffled(config).host_waits;
  }

  Golden golden_{"gpt2"};

 private:
  std::vector<double> norms(const StepPlan& plan, Device& device, ProcessGroup& group) {
    Executor executor(plan, device, group, golden_.seed);
    executor.initialize();
    std::vector<double> norms;
    for (int step = 0; step < steps; ++step) norms.push_back(executor.step(step).gradient_norm);
    return norms;
  }
};

TEST_F(ShuffledClippingTest, WaitsForNothingWhereTheUpdateIsOnTheDevice) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    EXPECT_EQ(waits_for_clipping(golden_.on(job().size(), stage, 1)), 0);
  }
}

TEST_F(ShuffledClippingTest, WaitsWhereTheUpdateIsOnTheHost) {
  if (job().size() == 4) GTEST_SKIP() << "shows no more than on two ranks";
  TrainingConfig config = golden_.on(job().size(), 2, 1);
  config.offload_optimizer = OffloadDevice::cpu;
  EXPECT_GT(waits_for_clipping(config), 0);
}

/// Steps whose operations are timed.
class ShuffledTraceTest : public test::ShuffledTraining {
 protected:
  static constexpr std::int64_t traced_step = 2;

  /// All losses; the trace is that of one step.
  static std::vector<double> run_traced(Executor& executor, StepTrace& trace) {
    executor.initialize();
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step)
      losses.push_back(executor.step(step, step == traced_step ? &trace : nullptr).loss);
    return losses;
  }
};

TEST_F(ShuffledTraceTest, AreTimedByTheQueuesAndNotByTheHostsWaits) {
  const Golden golden("llama");
  TrainingConfig config = golden.on(job().size(), 3, 1);
  config.overlap_comm = true;
  config.gradient_clipping = 0.05;
  const StepPlan plan = plan_of(golden.model, config);
  const std::unique_ptr<ProcessGroup> group = job().join();
  StepTrace of_processor, of_device;
  CpuDevice cpu(256 << 20, 1);
  Executor processors(plan, cpu, *group, golden.seed);
  const std::vector<double> expected = run_traced(processors, of_processor);
  test::ShuffledDevice device(256 << 20, 3);
  test::ShuffledGroup shuffled(*group, device.shuffled_queues());
  Executor executor(plan, device, shuffled, golden.seed);
  EXPECT_EQ(run_traced(executor, of_device), expected);

  ASSERT_EQ(of_device.size(), of_processor.size());
  std::size_t not_zero = 0;
  for (std::size_t place = 0; place < of_device.size(); ++place) {
    EXPECT_EQ(of_device[place].operation, of_processor[place].operation);
    EXPECT_GE(of_device[place].seconds, 0);
    not_zero += of_device[place].seconds > 0 ? 1 : 0;
  }
  EXPECT_GT(not_zero, of_device.size() / 4);
  if (job().size() > 1) return;  // collectives are waited for
  EXPECT_LT(device.shuffled_queues().host_waits(), std::ssize(of_device) / 4);
}

/// Large matrices, shards of which a disk holds.
class ShuffledDiskTest : public test::ShuffledTraining {};

TEST_F(ShuffledDiskTest, HasTheLossesOfTheProcessor) {
  ModelSpec model = Golden("gpt2").model;
  model.hidden_size = 64;
  model.num_heads = model.num_kv_heads = 2;
  model.head_size = 32;
  model.num_layers = 1;
  model.intermediate_size = 16'384;
  model.vocab_size = 16'384;
  model.tie_embeddings = false;
  for (const bool all : {false, true}) {
    TrainingConfig config;
    config.zero_stage = 3;
    config.precision = Precision::bf16;
    config.micro_batch = 1;
    config.accumulation_steps = 2;
    config.sequence_length = 8;
    config.overlap_comm = true;
    config.reduce_bucket_size = 1'200'000;
    config.sub_group_size = 1'000'000 / job().size();
    config.gradient_clipping = 1;
    config.offload_optimizer = OffloadDevice::nvme;
    config.offload_param = all ? OffloadDevice::nvme : OffloadDevice::cpu;
    config.disk.folder = testing::TempDir();
    config.disk.pipeline_read = config.disk.pipeline_write = all;
    config.disk.optimizer_buffers = 12;
    config.disk.parameter_buffer_size = 1'100'000;
    config.disk.parameters_in_memory = 0;
    config.disk.parameter_buffers = 5;
    config.stage3_max_reuse_distance = 0;
    config.stage3_prefetch_bucket_size = 1'200'000;
    config.stage3_param_persistence_threshold = 100;
    ASSERT_EQ(model_objection(model, config, job().size()), "");
    SCOPED_TRACE(all ? "parameters, too" : "optimizer");
    expect_losses_of_processor(model, config, 3, all ? 1 : 2);
  }
}

}  // namespace
}  // namespace dstune
