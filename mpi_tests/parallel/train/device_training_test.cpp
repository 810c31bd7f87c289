/// A device with memory and queues of its own gives the losses of the processor: the plan's events,
/// the host's waits and what is copied are enough, whatever order they leave.

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "disk_training.hpp"
#include "golden.hpp"
#include "losses_of_processor.hpp"

namespace dstune {
namespace {

using test::Golden;
using test::skipping;

struct Variant {
  std::string name;
  std::function<void(TrainingConfig&)> change;
  int min_stage = 0;
  bool is_basic = false;  ///< tried with every model, stage and precision
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
      {"as it is", [](auto&) {}, 0, true},
      {"small buckets", [](auto& c) { c.reduce_bucket_size = 5'000; }},
      {"buckets of one", [](auto& c) { c.reduce_bucket_size = 1; }},
      {"clipping", [](auto& c) { c.gradient_clipping = 0.05; }},
      {"selective", [](auto& c) { c.recompute = Recompute::selective; }},
      {"blocks again", [](auto& c) { c.recompute = Recompute::block; }, 0, true},
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
      {"optimizer on the host", offload, 1, true},
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
       3, true},
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
  std::vector<Case> result;
  for (const int stage : {0, 1, 2, 3})
    result.push_back({"llama", stage, Precision::bf16, stage == 1 ? 1 : 3});
  result.push_back({"gpt2", 1, Precision::fp16, 3, skipping});
  result.push_back({"gpt2", 2, Precision::fp32, 1});
  result.push_back({"gpt2", 3, Precision::fp16, 1, skipping});
  return result;
}

/// Every model in every precision at every stage.
std::vector<Case> all_cases() {
  std::vector<Case> result;
  for (const char* const model : {"gpt2", "llama", "bert"}) {
    for (const int stage : {0, 1, 2, 3}) {
      result.push_back({model, stage, Precision::fp32, 3});
      result.push_back({model, stage, Precision::bf16, 2});
      result.push_back({model, stage, Precision::fp16, 2, skipping});
    }
  }
  return result;
}

class DeviceTrainingTest : public test::LossesOfProcessor,
                           public testing::WithParamInterface<std::pair<Case, Variant>> {
 public:
  /// Every variant that a stage knows.
  static std::vector<std::pair<Case, Variant>> trainings() {
    std::vector<std::pair<Case, Variant>> result;
    const auto add = [&](const std::vector<Case>& some, bool only_basic) {
      for (const Case& each : some) {
        for (const Variant& variant : variants()) {
          if (variant.min_stage <= each.stage && (variant.is_basic || !only_basic))
            result.emplace_back(each, variant);
        }
      }
    };
    add(cases(), false);
    if (takes_all_cases) add(all_cases(), true);
    return result;
  }
};

TEST_P(DeviceTrainingTest, HasTheLossesOfTheProcessor) {
  const auto& [model_case, variant] = GetParam();
  const Golden golden(model_case.model);
  for (const bool overlap : {false, true}) {
    TrainingConfig config =
        golden.on(job().size(), model_case.stage, model_case.accumulation_steps);
    config.precision = model_case.precision;
    config.loss_scale = model_case.loss_scale;
    config.overlap_comm = overlap;
    variant.change(config);
    if (!partition_violation(config, job().size()).empty() ||
        !model_violation(golden.model, config, job().size()).empty())
      GTEST_SKIP() << "DeepSpeed fails on so many ranks";
    SCOPED_TRACE(overlap ? "overlapping" : "one after another");
    // Any number; an odd one of the two, not always the same.
    const std::uint64_t order =
        variant.name.size() + static_cast<std::uint64_t>(model_case.stage) + (overlap ? 1 : 0);
    expect_losses_of_processor(golden.model, config, test::skipping_seed(golden.seed), order);
  }
}

std::string name_of(const testing::TestParamInfo<std::pair<Case, Variant>>& training) {
  const auto& [model_case, variant] = training.param;
  std::string name = std::string(model_case.model) + "_" +
                     std::string(to_text(model_case.precision)) + "_stage" +
                     std::to_string(model_case.stage) + "_accumulating" +
                     std::to_string(model_case.accumulation_steps) + "_" + variant.name;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, DeviceTrainingTest,
                         testing::ValuesIn(DeviceTrainingTest::trainings()), name_of);

/// Large matrices, shards of which a disk holds.
class DeviceDiskTest : public test::LossesOfProcessor {};

TEST_F(DeviceDiskTest, HasTheLossesOfTheProcessor) {
  const ModelSpec model = test::disk_model();
  for (const bool all : {false, true}) {
    TrainingConfig config = test::disk_config(Precision::bf16, job().size());
    config.gradient_clipping = 1;
    config.offload_optimizer = OffloadDevice::nvme;
    config.offload_param = all ? OffloadDevice::nvme : OffloadDevice::cpu;
    config.disk.pipeline_read = config.disk.pipeline_write = all;
    test::serve_parameters(config);
    ASSERT_EQ(model_violation(model, config, job().size()), "");
    SCOPED_TRACE(all ? "parameters, too" : "optimizer");
    expect_losses_of_processor(model, config, 3, all ? 1 : 2);
  }
}

}  // namespace
}  // namespace dstune
