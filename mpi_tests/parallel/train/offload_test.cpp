/// The memory in which states live must not change the losses.

#include <string>
#include <vector>

#include "disk_training.hpp"
#include "golden.hpp"
#include "training.hpp"

namespace dstune {
namespace {

using test::Golden;

constexpr int steps = 6;

struct Case {
  const char* model;
  int stage;
  Precision precision;
};

class OffloadTest : public test::TrainingTest, public testing::WithParamInterface<Case> {
 protected:
  [[nodiscard]] TrainingConfig config(std::int64_t accumulation_steps) const {
    TrainingConfig result = golden_.on(job().size(), GetParam().stage, accumulation_steps);
    result.precision = GetParam().precision;
    result.reduce_bucket_size = 20'000;
    return result;
  }
  [[nodiscard]] Course course_of(const TrainingConfig& config) const {
    return course(golden_.model, config, steps, golden_.seed);
  }
  /// In a group of one the gradients of all micro-steps are added up inside the kernels unless they
  /// leave the device after each; and DeepSpeed's BF16_Optimizer, which is none for the host,
  /// rounds its sums in fp32 also in a group of one, unless it sends them so, and then in no group.
  [[nodiscard]] static bool adds_up_alike(const TrainingConfig& config) {
    const bool is_alone = job().size() == 1;
    if (is_bf16_optimizer(config))
      return is_alone == (config.communication_data_type == CommunicationType::fp32);
    if (!is_alone) return true;
    return config.accumulation_steps == 1 || config.zero_stage == 1;
  }
  void expect_equal(const TrainingConfig& config) const {
    TrainingConfig offloaded = config;
    offloaded.offload_optimizer = OffloadDevice::cpu;
    expect_equal(config, offloaded);
  }
  void expect_equal(const TrainingConfig& config, const TrainingConfig& offloaded) const {
    const Course expected = course_of(config);
    const Course found = course_of(offloaded);
    EXPECT_EQ(found.skipped_steps, expected.skipped_steps);
    if (adds_up_alike(config)) {
      EXPECT_EQ(found.losses, expected.losses);
    } else {
      const double tolerance = config.precision == Precision::fp32 ? 1e-5 : 1e-3;
      EXPECT_LT(test::largest_difference(found.losses, expected.losses), tolerance);
    }
  }

  Golden golden_{GetParam().model};
};

TEST_P(OffloadTest, TheOptimizerOnTheHostChangesNoBit) {
  for (const std::int64_t accumulation_steps : {1, 3}) {
    SCOPED_TRACE(std::to_string(accumulation_steps) + " micro-steps");
    expect_equal(config(accumulation_steps));
  }
}

TEST_P(OffloadTest, NeitherWithClipping) {
  for (const double clipping : {0.0, 0.05}) {
    TrainingConfig variant = config(3);
    variant.gradient_clipping = clipping;
    SCOPED_TRACE(clipping);
    expect_equal(variant);
  }
}

TEST_P(OffloadTest, NeitherWithSumsInFp32) {
  if (GetParam().precision == Precision::fp32 || GetParam().stage == 2) return;
  for (const bool overlap : {false, true}) {
    TrainingConfig variant = config(3);
    variant.overlap_comm = overlap;
    variant.fp32_gradient_accumulation = true;
    expect_equal(variant);
    variant.communication_data_type = CommunicationType::fp32;
    expect_equal(variant);
  }
}

TEST_P(OffloadTest, NeitherWithOverlapAndOtherWaysToReduce) {
  for (bool TrainingConfig::*member :
       {&TrainingConfig::overlap_comm, &TrainingConfig::reduce_scatter,
        &TrainingConfig::contiguous_gradients, &TrainingConfig::use_multi_rank_bucket_allreduce}) {
    TrainingConfig variant = config(3);
    variant.*member = !(variant.*member);
    expect_equal(variant);
  }
}

TEST_P(OffloadTest, NeitherDoParametersOnTheHost) {
  if (GetParam().stage < 3) return;
  for (const OffloadDevice optimizer : {OffloadDevice::none, OffloadDevice::cpu}) {
    for (const std::int64_t accumulation_steps : {1, 3}) {
      for (const bool overlap : {false, true}) {
        TrainingConfig offloaded = config(accumulation_steps);
        offloaded.overlap_comm = overlap;
        offloaded.offload_optimizer = optimizer;
        offloaded.offload_param = OffloadDevice::cpu;
        // Some parameters stay whole, some matrices travel together.
        offloaded.stage3_param_persistence_threshold = 100;
        offloaded.stage3_prefetch_bucket_size = overlap ? 5000 : 0;
        SCOPED_TRACE(std::to_string(accumulation_steps) + " micro-steps");
        expect_equal(config(accumulation_steps), offloaded);
      }
    }
  }
}

TEST_P(OffloadTest, NeitherDoSubGroupsThatStayOnTheDevice) {
  if (GetParam().stage < 3) return;
  for (const OffloadDevice parameters : {OffloadDevice::none, OffloadDevice::cpu}) {
    for (const double ratio : {0.0, 0.3, 0.8}) {
      for (const bool scatters : {true, false}) {
        TrainingConfig resident = config(3);
        resident.reduce_scatter = scatters;
        TrainingConfig offloaded = resident;
        offloaded.sub_group_size = 2000;
        offloaded.offload_optimizer = OffloadDevice::cpu;
        offloaded.offload_ratio = ratio;
        offloaded.offload_param = parameters;
        SCOPED_TRACE("ratio " + std::to_string(ratio) + (scatters ? ", scattered" : ""));
        expect_equal(resident, offloaded);
      }
    }
  }
}

class DiskOffloadTest : public test::TrainingTest, public testing::WithParamInterface<Precision> {
 protected:
  static TrainingConfig config(Precision precision) {
    TrainingConfig config = test::disk_config(precision, job().size());
    // In fp16 some steps are skipped, and the scale rises again.
    if (precision == Precision::fp16)
      config.loss_scale = {.initial_power = 21, .window = 2, .hysteresis = 1};
    return config;
  }
  static void expect_equal(const TrainingConfig& config, const Course& expected) {
    const Course found = course(test::disk_model(), config, steps, 3);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.skipped_steps, expected.skipped_steps);
  }
};

TEST_P(DiskOffloadTest, TheOptimizerOnADiskChangesNoBit) {
  const TrainingConfig on_host = config(GetParam());
  const Course expected = course(test::disk_model(), on_host, steps, 3);
  if (GetParam() == Precision::fp16) {
    EXPECT_GE(expected.skipped_steps.size(), 2U);
    EXPECT_LT(expected.skipped_steps.size(), std::size_t{steps});
  }
  for (const bool read_ahead : {false, true}) {
    for (const bool write_behind : {false, true}) {
      TrainingConfig on_disk = on_host;
      on_disk.offload_optimizer = OffloadDevice::nvme;
      on_disk.offload_param = write_behind ? OffloadDevice::cpu : OffloadDevice::none;
      on_disk.disk.pipeline_read = read_ahead;
      on_disk.disk.pipeline_write = write_behind;
      SCOPED_TRACE(std::string(read_ahead ? "ahead " : "") + (write_behind ? "behind" : ""));
      expect_equal(on_disk, expected);
    }
  }
}

// `ratio` takes the moments alone from the disk.
TEST_P(DiskOffloadTest, NeitherWithARatio) {
  const TrainingConfig on_host = config(GetParam());
  const Course expected = course(test::disk_model(), on_host, steps, 3);
  for (const double ratio : {0.0, 0.6}) {
    for (const bool pipelines : {false, true}) {
      TrainingConfig on_disk = on_host;
      on_disk.offload_optimizer = OffloadDevice::nvme;
      on_disk.offload_ratio = ratio;
      on_disk.disk.pipeline_read = on_disk.disk.pipeline_write = pipelines;
      SCOPED_TRACE("ratio " + std::to_string(ratio) + (pipelines ? ", pipelined" : ""));
      expect_equal(on_disk, expected);
    }
  }
}

TEST_P(DiskOffloadTest, NeitherWithOtherOptimizers) {
  if (GetParam() != Precision::fp32) return;
  for (const OptimizerKind kind :
       {OptimizerKind::lion, OptimizerKind::adagrad, OptimizerKind::sgd}) {
    TrainingConfig on_host = config(GetParam());
    on_host.optimizer.kind = kind;
    on_host.optimizer.learning_rate = 1e-3;
    on_host.optimizer.momentum = 0.9;
    TrainingConfig on_disk = on_host;
    on_disk.offload_optimizer = OffloadDevice::nvme;
    on_disk.disk.optimizer_buffers = DiskUse().optimizer_buffers;
    SCOPED_TRACE(to_text(kind));
    expect_equal(on_disk, course(test::disk_model(), on_host, steps, 3));
  }
}

TEST_P(DiskOffloadTest, NeitherDoParametersOnADisk) {
  for (const bool offloads_optimizer : {false, true}) {
    TrainingConfig on_host = config(GetParam());
    on_host.offload_param = OffloadDevice::cpu;
    if (!offloads_optimizer) on_host.offload_optimizer = OffloadDevice::none;
    const Course expected = course(test::disk_model(), on_host, steps, 3);
    for (const bool all : {true, false}) {
      // All of them on the disk or the second half, with the states of the first case there, too.
      if (!all && !offloads_optimizer) continue;
      TrainingConfig on_disk = on_host;
      on_disk.offload_param = OffloadDevice::nvme;
      if (all && offloads_optimizer) on_disk.offload_optimizer = OffloadDevice::nvme;
      on_disk.disk.pipeline_read = on_disk.disk.pipeline_write = true;
      test::serve_parameters(on_disk);
      if (!all) on_disk.disk.parameters_in_memory = 2'200'000 / job().size();
      if (!all) on_disk.disk.parameter_buffers = 2;
      ASSERT_EQ(model_violation(test::disk_model(), on_disk, job().size()), "");
      SCOPED_TRACE(std::string(to_text(on_disk.offload_optimizer)) + (all ? ", all" : ", half"));
      expect_equal(on_disk, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, DiskOffloadTest,
                         testing::Values(Precision::fp32, Precision::bf16, Precision::fp16),
                         [](const auto& precision) {
                           return std::string(to_text(precision.param));
                         });

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const int stage : {1, 2, 3}) {
    result.push_back({"gpt2", stage, Precision::fp32});
    result.push_back({"gpt2", stage, Precision::bf16});
    result.push_back({"llama", stage, Precision::fp16});
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadTest, testing::ValuesIn(cases()),
                         [](const auto& test_case) {
                           return std::string(test_case.param.model) + "_" +
                                  std::string(to_text(test_case.param.precision)) + "_stage" +
                                  std::to_string(test_case.param.stage);
                         });

}  // namespace
}  // namespace dstune
