#pragma once
/// What was seen of the GPUs of a group while its steps were timed. Local.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dstune/core/measurement.hpp"
#include "dstune/device/nvml.hpp"

namespace dstune::train {

/// Of this rank's GPU, as numbers that ranks exchange.
class GpuSamples {
 public:
  enum Number : std::size_t {
    num_samples,
    sm_clock_mhz,
    max_sm_clock_mhz,
    temperature_c,
    power_w,
    reasons,
    size
  };

  void add(const nvml::GpuState& state) {
    const double clock_mhz = state.sm_clock_mhz.value_or(0);
    if (clock_mhz > 0 && (numbers_[sm_clock_mhz] == 0 || clock_mhz < numbers_[sm_clock_mhz]))
      numbers_[sm_clock_mhz] = clock_mhz;
    const auto raise = [&](Number number, const std::optional<double>& value) {
      numbers_[number] = std::max(numbers_[number], value.value_or(0));
    };
    raise(max_sm_clock_mhz, state.max_sm_clock_mhz);
    raise(temperature_c, state.temperature_c);
    raise(power_w, state.power_w);
    // Few bits, which a double has all of.
    numbers_[reasons] =
        static_cast<double>(static_cast<std::uint64_t>(numbers_[reasons]) | state.throttle_reasons);
    ++numbers_[num_samples];
  }
  [[nodiscard]] const std::array<double, size>& numbers() const { return numbers_; }

 private:
  std::array<double, size> numbers_{};
};

/// From the numbers of all ranks, one after the other; nothing where no rank saw any.
inline std::optional<GpuCondition> condition_of(std::span<const double> all) {
  GpuCondition worst;
  std::uint64_t reasons = 0;
  bool has_seen = false;
  for (; !all.empty(); all = all.subspan(GpuSamples::size)) {
    if (all[GpuSamples::num_samples] == 0) continue;
    has_seen = true;
    const double clock_mhz = all[GpuSamples::sm_clock_mhz];
    if (clock_mhz > 0 && (worst.sm_clock_mhz == 0 || clock_mhz < worst.sm_clock_mhz)) {
      worst.sm_clock_mhz = clock_mhz;
      worst.max_sm_clock_mhz = all[GpuSamples::max_sm_clock_mhz];
    }
    worst.temperature_c = std::max(worst.temperature_c, all[GpuSamples::temperature_c]);
    worst.power_w = std::max(worst.power_w, all[GpuSamples::power_w]);
    reasons |= static_cast<std::uint64_t>(all[GpuSamples::reasons]);
  }
  if (!has_seen) return std::nullopt;
  worst.throttled_by = nvml::throttle_text(reasons);
  return worst;
}

}  // namespace dstune::train
