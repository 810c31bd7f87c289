#pragma once
/// NVIDIA's management library without a driver: a shared library with its functions, and what they
/// tell of which GPUs.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dstune/device/nvml.hpp"

namespace dstune::nvml {

/// A GPU of the stand-in: what a call leaves out is not supported.
struct Opaque {
  std::optional<std::uint64_t> energy_mj{};
  std::optional<std::uint32_t> power_mw{}, temperature_c{}, sm_mhz{}, max_sm_mhz{}, memory_mhz{};
  std::optional<std::uint64_t> throttle_reasons{}, free_bytes{};
  std::map<Fact, std::uint64_t> facts{};
  std::optional<std::vector<Process>> processes{};
  Opaque* whole = nullptr;
  std::function<void(Opaque&)> refresh{};  ///< before each answer
};

struct FakeNvml {
  std::map<std::string, Opaque> gpus{};
  std::optional<int> supported_cuda{};
};
/// What the library's functions tell, in this process.
FakeNvml& fake_nvml();

}  // namespace dstune::nvml
