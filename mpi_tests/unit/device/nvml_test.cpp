#include "dstune/device/nvml.hpp"

#include <gtest/gtest.h>

#include "dstune/device/gpu_state.hpp"
#include "fake_nvml.hpp"

namespace dstune::nvml {
namespace {

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() { fake_ = {}; }
  [[nodiscard]] FoundEnergyMeter find(const std::vector<std::string>& uuids) const {
    return find_meter({driver_, ""}, uuids);
  }
  FakeNvml& fake_ = fake_nvml();
  std::shared_ptr<GpuDriver> driver_ = find_library(DSTUNE_FAKE_NVML).library;
};

TEST_F(NvmlTest, CountsEachGpuOnceFromWhereItBegan) {
  fake_.gpus["GPU-a"].energy_mj = 5'000'000;
  fake_.gpus["GPU-b"].energy_mj = 100;
  fake_.gpus["GPU-c"].energy_mj = 0;
  const auto [meter, reason] = find({"GPU-b", "GPU-a", "GPU-b"});
  ASSERT_TRUE(meter) << reason;
  EXPECT_EQ(meter->description(), "2 GPUs");
  EXPECT_EQ(meter->joules(), 0.0);
  fake_.gpus["GPU-a"].energy_mj = 5'002'500;
  fake_.gpus["GPU-b"].energy_mj = 1'100;
  fake_.gpus["GPU-c"].energy_mj = 1'000'000;
  EXPECT_EQ(meter->joules(), 3.5);
  EXPECT_EQ(find({"GPU-c"}).meter->description(), "1 GPU");
}

TEST_F(NvmlTest, WhatCanNotBeReadAnyMoreIsNoFigure) {
  fake_.gpus["GPU-a"].energy_mj = 1'000;
  const auto meter = find({"GPU-a"}).meter;
  fake_.gpus["GPU-a"].energy_mj = 10;  // reset
  EXPECT_FALSE(meter->joules());
  fake_.gpus["GPU-a"].energy_mj = 2'000;
  EXPECT_FALSE(meter->joules()) << "what was used meanwhile is not known";
}

TEST_F(NvmlTest, SaysWhyThereIsNone) {
  fake_.gpus["GPU-old"].power_mw = 100;
  EXPECT_EQ(find({"GPU-old"}).reason, "the energy of GPU-old: Not Supported");
  EXPECT_EQ(find({"GPU-gone"}).reason, "the energy of GPU-gone: Not Found");
  EXPECT_EQ(find({}).reason, "no GPU");
  EXPECT_EQ(find_meter({nullptr, "no library"}, {"GPU-a"}).reason, "no library");
}

TEST_F(NvmlTest, LooksAtAGpu) {
  fake_.gpus["GPU-a"] = {.power_mw = 412'500,
                         .temperature_c = 61,
                         .sm_mhz = 1'410,
                         .max_sm_mhz = 1'980,
                         .throttle_reasons = 0x4 | 0x20 | 0x2};
  const std::optional<GpuState> state = sample_gpu(driver_, "GPU-a");
  ASSERT_TRUE(state);
  EXPECT_EQ(state->power_w, 412.5);
  EXPECT_EQ(state->temperature_c, 61.0);
  EXPECT_EQ(state->sm_clock_mhz, 1410.0);
  EXPECT_EQ(state->max_sm_clock_mhz, 1980.0);
  EXPECT_FALSE(state->memory_clock_mhz);
  EXPECT_EQ(throttle_text(state->throttle_reasons), "power cap, heat");
  EXPECT_EQ(state->throttle_reasons, 0x26U);
}

TEST_F(NvmlTest, WhatIsNotToldIsNoFailure) {
  fake_.gpus["GPU-a"].free_bytes = 3 << 20;
  EXPECT_EQ(free_bytes(driver_, "GPU-a"), 3 << 20);
  EXPECT_FALSE(free_bytes(driver_, "GPU-b"));
  EXPECT_FALSE(free_bytes(nullptr, "GPU-a"));
  EXPECT_TRUE(sample_gpu(driver_, "GPU-a"));
  EXPECT_FALSE(sample_gpu(driver_, "MIG-a"));
  EXPECT_FALSE(sample_gpu(nullptr, "GPU-a"));
}

TEST(ThrottleTextTest, NamesFaultsAlone) {
  EXPECT_EQ(throttle_text(0), "");
  EXPECT_EQ(throttle_text(0x1 | 0x2 | 0x10 | 0x100), "");
  EXPECT_EQ(throttle_text(0x8 | 0x40 | 0x80),
            "hardware slowdown, heat, by the hardware, power brake");
}

TEST(FindNvmlTest, SaysWhichFileIsMissingOrNoNvml) {
  const FoundLibrary none = find_library("libnvidia-that-nobody-has.so.1");
  EXPECT_FALSE(none.library);
  EXPECT_NE(none.reason.find("libnvidia-that-nobody-has.so.1"), std::string::npos) << none.reason;
  EXPECT_EQ(find_library("libm.so.6").reason, "libm.so.6 lacks nvmlInit_v2");
}

class Steady : public EnergyMeter {
 public:
  Steady(std::string name, std::optional<double> joules)
      : name_(std::move(name)), joules_(joules) {}
  std::optional<double> joules() override { return joules_; }
  [[nodiscard]] std::string description() const override { return name_; }

 private:
  std::string name_;
  std::optional<double> joules_;
};

FoundEnergyMeter steady(const std::string& name, std::optional<double> joules) {
  return {std::make_unique<Steady>(name, joules), ""};
}

TEST(SumOfMetersTest, IsBothOrTheOneThatIsThere) {
  const auto both = sum_of(steady("package-0", 1.5), steady("1 GPU", 2));
  EXPECT_EQ(both.meter->joules(), 3.5);
  EXPECT_EQ(both.meter->description(), "package-0, 1 GPU");
  EXPECT_EQ(sum_of(steady("package-0", 1.5), steady("1 GPU", std::nullopt)).meter->joules(),
            std::nullopt);
  const auto one = sum_of({nullptr, "not allowed"}, steady("1 GPU", 2));
  EXPECT_EQ(one.meter->description(), "1 GPU");
  EXPECT_EQ(one.reason, "not allowed");
  const auto none = sum_of({nullptr, "not allowed"}, {nullptr, "no GPU"});
  EXPECT_FALSE(none.meter);
  EXPECT_EQ(none.reason, "not allowed; no GPU");
}

}  // namespace
}  // namespace dstune::nvml
