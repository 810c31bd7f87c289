#include "dstune/device/nvml.hpp"

#include <map>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"

namespace dstune::nvml {

/// A GPU of the stand-in: what a call leaves out is not supported.
struct Opaque {
  std::optional<std::uint64_t> energy_mj{};
  std::optional<std::uint32_t> power_mw{}, temperature_c{}, sm_mhz{}, max_sm_mhz{}, memory_mhz{};
  std::optional<std::uint64_t> throttle_reasons{};
};

namespace {

constexpr int not_supported = 3;
constexpr int not_found = 6;

class FakeNvml : public Library {
 public:
  std::map<std::string, Opaque> gpus;

  std::string error_text(int result) override {
    return result == not_supported ? "Not Supported" : "Not Found";
  }
  int find_device(const std::string& uuid, Device& device) override {
    const auto found = gpus.find(uuid);
    if (found == gpus.end()) return not_found;
    device = &found->second;
    return 0;
  }
  int energy_mj(Device device, std::uint64_t& energy) override {
    return tell(device->energy_mj, energy);
  }
  int power_mw(Device device, std::uint32_t& power) override {
    return tell(device->power_mw, power);
  }
  int temperature_c(Device device, std::uint32_t& temperature) override {
    return tell(device->temperature_c, temperature);
  }
  int clock_mhz(Device device, Clock clock, std::uint32_t& frequency) override {
    return tell(clock == Clock::sm ? device->sm_mhz : device->memory_mhz, frequency);
  }
  int max_clock_mhz(Device device, Clock clock, std::uint32_t& frequency) override {
    return clock == Clock::sm ? tell(device->max_sm_mhz, frequency) : not_supported;
  }
  int throttle_reasons(Device device, std::uint64_t& reasons) override {
    return tell(device->throttle_reasons, reasons);
  }

 private:
  template <class Number>
  static int tell(const std::optional<Number>& number, Number& to) {
    if (!number) return not_supported;
    to = *number;
    return 0;
  }
};

class NvmlTest : public testing::Test {
 protected:
  [[nodiscard]] FoundEnergyMeter find(const std::vector<std::string>& uuids) const {
    return find_meter({fake_, ""}, uuids);
  }
  std::shared_ptr<FakeNvml> fake_ = std::make_shared<FakeNvml>();
};

TEST_F(NvmlTest, CountsEachGpuOnceFromWhereItBegan) {
  fake_->gpus["GPU-a"].energy_mj = 5'000'000;
  fake_->gpus["GPU-b"].energy_mj = 100;
  fake_->gpus["GPU-c"].energy_mj = 0;
  const auto [meter, reason] = find({"GPU-b", "GPU-a", "GPU-b"});
  ASSERT_TRUE(meter) << reason;
  EXPECT_EQ(meter->description(), "2 GPUs");
  EXPECT_EQ(meter->joules(), 0.0);
  fake_->gpus["GPU-a"].energy_mj = 5'002'500;
  fake_->gpus["GPU-b"].energy_mj = 1'100;
  fake_->gpus["GPU-c"].energy_mj = 1'000'000;
  EXPECT_EQ(meter->joules(), 3.5);
  EXPECT_EQ(find({"GPU-c"}).meter->description(), "1 GPU");
}

TEST_F(NvmlTest, WhatCanNotBeReadAnyMoreIsNoFigure) {
  fake_->gpus["GPU-a"].energy_mj = 1'000;
  const auto meter = find({"GPU-a"}).meter;
  fake_->gpus["GPU-a"].energy_mj = 10;  // reset
  EXPECT_FALSE(meter->joules());
  fake_->gpus["GPU-a"].energy_mj = 2'000;
  EXPECT_FALSE(meter->joules()) << "what was used meanwhile is not known";
}

TEST_F(NvmlTest, SaysWhyThereIsNone) {
  fake_->gpus["GPU-old"].power_mw = 100;
  EXPECT_EQ(find({"GPU-old"}).reason, "the energy of GPU-old: Not Supported");
  EXPECT_EQ(find({"GPU-gone"}).reason, "the energy of GPU-gone: Not Found");
  EXPECT_EQ(find({}).reason, "no GPU");
  EXPECT_EQ(find_meter({nullptr, "no library"}, {"GPU-a"}).reason, "no library");
}

TEST_F(NvmlTest, LooksAtAGpu) {
  fake_->gpus["GPU-a"] = {.power_mw = 412'500,
                          .temperature_c = 61,
                          .sm_mhz = 1'410,
                          .max_sm_mhz = 1'980,
                          .throttle_reasons = 0x4 | 0x20 | 0x2};
  const GpuState state = look_at_gpu(*fake_, "GPU-a");
  EXPECT_EQ(state.power_w, 412.5);
  EXPECT_EQ(state.temperature_c, 61.0);
  EXPECT_EQ(state.sm_clock_mhz, 1410.0);
  EXPECT_EQ(state.max_sm_clock_mhz, 1980.0);
  EXPECT_FALSE(state.memory_clock_mhz);
  EXPECT_EQ(state.throttled_by, "power cap, heat");
  EXPECT_THROW(static_cast<void>(look_at_gpu(*fake_, "GPU-b")), DeviceError);
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
