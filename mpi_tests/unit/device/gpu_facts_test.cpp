#include "dstune/device/gpu_facts.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "cuda/gpus.hpp"
#include "dstune/device/device_peaks.hpp"
#include "fake_nvml.hpp"
#include "fake_runtime.hpp"
#include "nvml_functions.hpp"

namespace dstune {
namespace {

using nvml::Fact;

class GpuFactsTest : public testing::Test {
 protected:
  GpuFactsTest() { fake_ = {}; }

  nvml::FakeNvml& fake_ = nvml::fake_nvml();
  std::shared_ptr<GpuDriver> driver_ = nvml::find_library(DSTUNE_FAKE_NVML).library;
};

TEST_F(GpuFactsTest, TellsHowAGpuIsSetUp) {
  fake_.supported_cuda = 12040;
  nvml::Opaque& gpu = fake_.gpus["GPU-a"];
  gpu.facts = {{Fact::is_instance, 0},      {Fact::mig_mode, 0},           {Fact::compute_mode, 3},
               {Fact::ecc_mode, 1},         {Fact::rows_pending, 0},       {Fact::pages_pending, 1},
               {Fact::remapping_failed, 1}, {Fact::uncorrected_errors, 2}, {Fact::nvlinks, 18}};
  gpu.processes = {{.number = static_cast<std::uint32_t>(::getpid()), .bytes = 3 << 20}, {1}};
  const GpuFacts facts = facts_of_gpu(driver_, "GPU-a");
  EXPECT_EQ(facts.driver_cuda, 12040);
  EXPECT_EQ(facts.is_instance, false);
  EXPECT_EQ(facts.has_mig, false);
  EXPECT_EQ(facts.compute_mode, "exclusive process");
  EXPECT_EQ(facts.has_ecc, true);
  EXPECT_EQ(facts.uncorrected_errors, 2);
  EXPECT_EQ(facts.repair_pending, true);
  EXPECT_EQ(facts.repair_failed, true);
  EXPECT_EQ(facts.nvlinks, 18);
  ASSERT_EQ(facts.processes->size(), 2U);
  EXPECT_EQ(facts.processes->front().number, ::getpid());
  EXPECT_EQ(facts.processes->front().bytes, 3 << 20);
  EXPECT_FALSE(facts.processes->front().name.empty());
  EXPECT_FALSE(facts.processes->back().bytes);
}

TEST_F(GpuFactsTest, WhatIsNotToldIsNotKnown) {
  fake_.gpus["GPU-a"] = {};
  GpuFacts facts = facts_of_gpu(driver_, "GPU-a");
  add_speeds(driver_, facts);
  EXPECT_EQ(facts.uuid, "GPU-a");
  EXPECT_FALSE(facts.is_instance || facts.has_mig || facts.compute_mode || facts.has_ecc ||
               facts.uncorrected_errors || facts.repair_pending || facts.repair_failed ||
               facts.processes || facts.nvlinks || facts.driver_cuda || facts.sm_clock_mhz ||
               facts.throttle_reasons || facts.pcie_width || facts.max_pcie_generation);
  EXPECT_FALSE(facts_of_gpu(driver_, "GPU-b").has_ecc);
  EXPECT_FALSE(facts_of_gpu(nullptr, "GPU-a").driver_cuda);
}

// CUDA's UUID of a part says nothing of what it is.
TEST_F(GpuFactsTest, OfAPartItAsksTheWholeGpu) {
  nvml::Opaque& whole = fake_.gpus["GPU-a"];
  whole.facts = {{Fact::mig_mode, 1}, {Fact::ecc_mode, 1}, {Fact::pcie_width, 8}};
  whole.processes = {{1}, {2}, {3}};
  nvml::Opaque& part = fake_.gpus["MIG-b"];
  part.facts = {{Fact::is_instance, 1}};
  part.processes = std::vector<nvml::Process>{{.number = 4}};
  part.whole = &whole;
  GpuFacts facts = facts_of_gpu(driver_, "GPU-b");
  EXPECT_EQ(facts.is_instance, true);
  EXPECT_EQ(facts.has_mig, true);
  EXPECT_EQ(facts.has_ecc, true);
  ASSERT_EQ(facts.processes->size(), 1U);
  EXPECT_EQ(facts.processes->front().number, 4);
  add_speeds(driver_, facts);
  EXPECT_EQ(facts.pcie_width, 8);
}

TEST_F(GpuFactsTest, TellsSpeedsWhenAsked) {
  nvml::Opaque& gpu = fake_.gpus["GPU-a"];
  gpu.sm_mhz = 1410;
  gpu.max_sm_mhz = 1980;
  gpu.memory_mhz = 2619;
  gpu.throttle_reasons = 0x20;
  gpu.facts = {{Fact::pcie_width, 8},
               {Fact::max_pcie_width, 16},
               {Fact::pcie_generation, 4},
               {Fact::max_pcie_generation, 5}};
  GpuFacts facts = facts_of_gpu(driver_, "GPU-a");
  EXPECT_FALSE(facts.sm_clock_mhz);
  add_speeds(driver_, facts);
  EXPECT_EQ(facts.sm_clock_mhz, 1410);
  EXPECT_EQ(facts.max_sm_clock_mhz, 1980);
  EXPECT_EQ(facts.memory_clock_mhz, 2619);
  EXPECT_EQ(facts.throttle_reasons, 0x20);
  EXPECT_EQ(facts.pcie_width, 8);
  EXPECT_EQ(facts.max_pcie_width, 16);
  EXPECT_EQ(facts.pcie_generation, 4);
  EXPECT_EQ(facts.max_pcie_generation, 5);
}

TEST(NvmlFunctionsTest, AFunctionThatAnOlderLibraryLacksIsNotSupported) {
  nvml::Functions functions{};
  functions.shutdown = [] { return 0; };
  functions.handle_by_uuid = [](const char*, nvml::Device*) { return 0; };
  functions.clock_info = functions.max_clock_info = [](nvml::Device, int, unsigned int* mhz) {
    *mhz = 1000;
    return 0;
  };
  const auto library = library_of(functions);
  GpuFacts facts = facts_of_gpu(library, "GPU-a");
  add_speeds(library, facts);
  EXPECT_EQ(facts.sm_clock_mhz, 1000);
  EXPECT_FALSE(facts.is_instance || facts.has_mig || facts.compute_mode || facts.has_ecc ||
               facts.uncorrected_errors || facts.repair_pending || facts.repair_failed ||
               facts.processes || facts.nvlinks || facts.driver_cuda || facts.throttle_reasons ||
               facts.pcie_width || facts.max_pcie_width || facts.pcie_generation);
}

TEST(MpsTest, ServesWhereItsControlPipeIs) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("dstune-mps-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(has_mps_pipe(folder.c_str()));
  std::ofstream(folder / "control") << "";
  EXPECT_TRUE(has_mps_pipe(folder.c_str()));
  std::filesystem::remove_all(folder);
}

TEST(CudaGpusTest, TheRanksGpuIsFoundWithoutAContext) {
  test::FakeRuntime runtime;
  runtime.devices = 3;
  const auto gpu = cuda::find_gpu(runtime, 4);
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->number, 1);
  EXPECT_EQ(gpu->uuid, "gpu-1");
  EXPECT_FALSE(runtime.has_context);
  runtime.failures["count_devices"] = 35;
  EXPECT_FALSE(cuda::find_gpu(runtime, 0));
  EXPECT_EQ(runtime.num_calls("forget_error"), 1);
}

TEST(CudaGpusTest, TellsWhichOtherGpusItReaches) {
  test::FakeRuntime runtime;
  runtime.devices = 3;
  runtime.strangers = {{0, 2}};
  const std::map<std::string, bool> expected = {{"gpu-1", true}, {"gpu-2", false}};
  EXPECT_EQ(cuda::find_peers(runtime, 0), expected);
  EXPECT_FALSE(runtime.has_context);
  runtime.failures["can_access_peer"] = 101;
  EXPECT_TRUE(cuda::find_peers(runtime, 0).empty());
}

TEST(DevicePeaksTest, AreOfTheMostSpecialName) {
  EXPECT_EQ(peaks_of("cuda (NVIDIA H100 PCIe)")->flops, 756e12);
  EXPECT_EQ(peaks_of("cuda (NVIDIA H100 80GB HBM3)")->flops, 989.4e12);
  EXPECT_EQ(peaks_of("cuda (NVIDIA GH200 480GB)")->memory_bytes, 4000e9);
  EXPECT_FALSE(peaks_of("cpu (AMD EPYC)"));
}

}  // namespace
}  // namespace dstune
