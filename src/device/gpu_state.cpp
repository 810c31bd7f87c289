#include "dstune/device/gpu_state.hpp"

#include <utility>

#include "dstune/device/nvml.hpp"

namespace dstune {

std::shared_ptr<GpuDriver> find_gpu_driver() {
  return nvml::find_library().library;
}

std::string throttle_text(std::uint64_t reasons) {
  // Idle (1), set clocks (2), boost in step with others (16) and display clocks (256) are no fault.
  constexpr std::pair<std::uint64_t, const char*> names[] = {
      {4, "power cap"},     {8, "hardware slowdown"}, {32, "heat"}, {64, "heat, by the hardware"},
      {128, "power brake"},
  };
  std::string text;
  for (const auto& [bit, name] : names) {
    if ((reasons & bit) == 0) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

std::optional<GpuState> sample_gpu(const std::shared_ptr<GpuDriver>& driver,
                                   const std::string& uuid) {
  nvml::Device device = nullptr;
  if (!driver || driver->find_device(uuid, device) != 0) return std::nullopt;
  using Clock = GpuDriver::Clock;
  const auto ask = [&](double unit, auto function, auto... of) -> std::optional<double> {
    std::uint32_t number = 0;
    if (((*driver).*function)(device, of..., number) != 0) return std::nullopt;
    return unit * number;
  };
  GpuState state{.sm_clock_mhz = ask(1, &GpuDriver::clock_mhz, Clock::sm),
                 .max_sm_clock_mhz = ask(1, &GpuDriver::max_clock_mhz, Clock::sm),
                 .memory_clock_mhz = ask(1, &GpuDriver::clock_mhz, Clock::memory),
                 .power_w = ask(1e-3, &GpuDriver::power_mw),
                 .temperature_c = ask(1, &GpuDriver::temperature_c)};
  GpuDriver::Count reasons = 0;
  if (driver->throttle_reasons(device, reasons) == 0) state.throttle_reasons = reasons;
  return state;
}

}  // namespace dstune
