#pragma once
/// How a GPU is now, as its driver tells. All functions: Local.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace dstune {

namespace nvml {
class Library;
}
/// The driver of the host's GPUs, which tells their state.
using GpuDriver = nvml::Library;
/// Null where there is none.
[[nodiscard]] std::shared_ptr<GpuDriver> find_gpu_driver();

/// The state of a GPU; values that it does not tell are missing.
struct GpuState {
  std::optional<double> sm_clock_mhz, max_sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
  std::uint64_t throttle_reasons = 0;  ///< bits
};
/// Nothing where there is no driver or no such GPU, as with a part of one (MIG).
[[nodiscard]] std::optional<GpuState> sample_gpu(const std::shared_ptr<GpuDriver>& driver,
                                                 const std::string& uuid);

/// Names what keeps a GPU from its highest clock: "power cap, heat"; "" if nothing does. An idle
/// GPU and clocks that were set on purpose are none of it.
[[nodiscard]] std::string throttle_text(std::uint64_t reasons);

}  // namespace dstune
