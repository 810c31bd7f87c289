#pragma once
/// NVIDIA's management library without a driver: GPUs that tell what a test says.

#include <cstdint>
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
};

inline constexpr int not_supported = 3;
inline constexpr int not_found = 6;

class FakeNvml : public Library {
 public:
  std::map<std::string, Opaque> gpus;
  std::optional<int> supported_cuda;

  std::string error_text(int result) override {
    return result == not_supported ? "Not Supported" : "Not Found";
  }
  int find_device(const std::string& uuid, Device& device) override {
    const auto found = gpus.find(uuid);
    if (found == gpus.end()) return not_found;
    device = &found->second;
    return 0;
  }
  int energy_mj(Device device, Count& energy) override { return tell(device->energy_mj, energy); }
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
  int throttle_reasons(Device device, Count& reasons) override {
    return tell(device->throttle_reasons, reasons);
  }
  int free_bytes(Device device, Count& bytes) override { return tell(device->free_bytes, bytes); }
  int ask(Device device, Fact fact, Count& number) override {
    const auto found = device->facts.find(fact);
    if (found == device->facts.end()) return not_supported;
    number = found->second;
    return 0;
  }
  int find_processes(Device device, std::vector<Process>& processes) override {
    return tell(device->processes, processes);
  }
  int find_whole(Device instance, Device& whole) override {
    whole = instance->whole;
    return whole == nullptr ? not_found : 0;
  }
  int cuda_version(int& version) override { return tell(supported_cuda, version); }

 private:
  template <class Number, class To>
  static int tell(const std::optional<Number>& number, To& to) {
    if (!number) return not_supported;
    to = *number;
    return 0;
  }
};

}  // namespace dstune::nvml
