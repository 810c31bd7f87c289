// What the management library tells of the emulated GPUs.
#include <chrono>

#include "fake_nvml.hpp"
#include "machine.hpp"

namespace dstune::emulated {
namespace {

using nvml::Fact;

constexpr unsigned power_mw = 250000;

void refresh(int number, nvml::Opaque& gpu) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  gpu.energy_mj = static_cast<std::uint64_t>(now_us) * power_mw / 1000000;
  gpu.free_bytes = free_bytes(number);
  gpu.processes.emplace();
  for (const auto& [process, bytes] : holders(number)) {
    gpu.processes->push_back(
        {.number = static_cast<std::uint32_t>(process), .bytes = static_cast<std::int64_t>(bytes)});
  }
}

[[maybe_unused]] const bool is_filled = [] {
  nvml::FakeNvml& fake = nvml::fake_nvml();
  fake.supported_cuda = machine().cuda_version;
  for (int number = 0; number < machine().gpus; ++number) {
    fake.gpus[uuid_of(number)] = {.power_mw = power_mw,
                                  .temperature_c = 50,
                                  .sm_mhz = 1980,
                                  .max_sm_mhz = 1980,
                                  .memory_mhz = 3201,
                                  .throttle_reasons = 0,
                                  .facts = {{Fact::is_instance, 0},
                                            {Fact::mig_mode, 0},
                                            {Fact::compute_mode, 0},
                                            {Fact::ecc_mode, 1},
                                            {Fact::uncorrected_errors, 0},
                                            {Fact::rows_pending, 0},
                                            {Fact::remapping_failed, 0},
                                            {Fact::pcie_width, 16},
                                            {Fact::max_pcie_width, 16},
                                            {Fact::pcie_generation, 5},
                                            {Fact::max_pcie_generation, 5},
                                            {Fact::nvlinks, 18}},
                                  .refresh = [number](nvml::Opaque& gpu) { refresh(number, gpu); }};
  }
  return true;
}();

}  // namespace
}  // namespace dstune::emulated
