#pragma once
/// The part of a measurement that is made of what each rank of the group saw.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "dstune/core/measurement.hpp"
#include "dstune/device/gpu_state.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/train/workload.hpp"

namespace dstune::train {

/// A struct of doubles from every rank of the group. Collective over the group.
template <class Numbers>
std::vector<Numbers> exchange(ProcessGroup& group, const Numbers& mine) {
  const auto plain = std::bit_cast<std::array<double, sizeof(Numbers) / sizeof(double)>>(mine);
  const std::vector<double> all = group.exchange(plain);
  std::vector<Numbers> result(static_cast<std::size_t>(group.size()));
  std::memcpy(static_cast<void*>(result.data()), all.data(), all.size() * sizeof(double));
  return result;
}

/// States of this rank's GPU while steps are timed. 0: nobody told.
struct GpuSamples {
  double num_samples = 0;
  double sm_clock_mhz = 0;  ///< the lowest, of the others the highest
  double max_sm_clock_mhz = 0;
  double temperature_c = 0;
  double power_w = 0;
  double reasons = 0;  ///< few bits, which a double has all of

  void add(const GpuState& state) {
    const double clock_mhz = state.sm_clock_mhz.value_or(0);
    if (clock_mhz > 0 && (sm_clock_mhz == 0 || clock_mhz < sm_clock_mhz)) sm_clock_mhz = clock_mhz;
    max_sm_clock_mhz = std::max<double>(max_sm_clock_mhz, state.max_sm_clock_mhz.value_or(0));
    temperature_c = std::max<double>(temperature_c, state.temperature_c.value_or(0));
    power_w = std::max<double>(power_w, state.power_w.value_or(0));
    reasons = static_cast<double>(static_cast<std::uint64_t>(reasons) | state.throttle_reasons);
    ++num_samples;
  }
};

/// The worst condition of the GPUs of all ranks; nothing if no rank saw any. Local.
std::optional<GpuCondition> condition_of(const std::vector<GpuSamples>& all);

/// Adds the peak memory, that of the rank that holds most in its arena, and the energy of all
/// nodes; processes are looked at on their own. Collective over the group.
void add_totals(ProcessGroup& group, PeakMemory mine, double joules_used, Measurement& result);

/// Adds the fallbacks of all ranks: one on one rank holds up all of them. Collective over the
/// group.
void add_fallbacks(ProcessGroup& group, const std::vector<Fallback>& mine, Measurement& result);

}  // namespace dstune::train
