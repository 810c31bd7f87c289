// From what a GPU's driver says while steps are timed to what people read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/group/process_group.hpp"
#include "dstune/report/results.hpp"
#include "dstune/train/workload.hpp"
#include "fake_nvml.hpp"

namespace dstune {
namespace {

/// Steps that do nothing.
class IdleBackoff : public Workload {
 public:
  void build() override {}
  void initialize() override {}
  StepSample step(std::int64_t) override { return {.loss = 1, .step_s = 0.25}; }
  [[nodiscard]] PeakMemory peak_memory() const override { return {}; }
  [[nodiscard]] double flops_per_step() const override { return 1; }
  [[nodiscard]] WorkloadTraits traits() const override {
    return {.has_simulated_times = true, .talks_to_peers = true};
  }
};

TEST(GpuResultsTest, ThrottlingIsFlaggedInTheSummary) {
  nvml::FakeNvml& fake = nvml::fake_nvml();
  const auto driver = nvml::find_library(DSTUNE_FAKE_NVML).library;
  fake.gpus["GPU-a"] = {.temperature_c = 91, .sm_mhz = 1200, .max_sm_mhz = 1980};
  for (const bool is_throttled : {false, true}) {
    fake.gpus["GPU-a"].throttle_reasons = is_throttled ? 0x20 | 0x1 : 0x1;
    SelfGroup group(0);
    IdleBackoff workload;
    MeasureHooks hooks;
    hooks.sample_gpu = [&] { return sample_gpu(driver, "GPU-a"); };
    Record record;
    record.experiment.name = "hot";
    record.measurement = measure(workload, group, {}, hooks);
    ASSERT_TRUE(record.measurement.gpu);
    EXPECT_EQ(record.measurement.gpu->temperature_c, 91);
    Row row;
    row.planned.experiment = record.experiment;
    row.record = record;
    const Scoreboard scoreboard({}, {row});
    const std::string text = summary_text(answer_of(scoreboard));
    const std::string flag = "hot: throttled: heat, 1200 of 1980 MHz, 91 °C";
    EXPECT_EQ(text.find(flag) != std::string::npos, is_throttled) << text;
  }
}

}  // namespace
}  // namespace dstune
