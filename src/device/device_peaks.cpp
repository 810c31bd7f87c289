#include "dstune/device/device_peaks.hpp"

#include <string_view>
#include <utility>

namespace dstune {

std::optional<DevicePeaks> peaks_of(const std::string& device) {
  // The vendor's data sheets have them, without sparsity. The more special name comes first.
  static constexpr std::pair<std::string_view, DevicePeaks> known[] = {
      {"GB200", {2500e12, 8000e9}},
      {"B200", {2250e12, 8000e9}},
      {"GH200 144G", {989.4e12, 4900e9}},
      {"GH200", {989.4e12, 4000e9}},
      {"H200 NVL", {835.5e12, 4800e9}},
      {"H200", {989.4e12, 4800e9}},
      {"H100 PCIe", {756e12, 2039e9}},
      {"H100 NVL", {835e12, 3938e9}},
      {"H100", {989.4e12, 3352e9}},
      {"A100-SXM4-40GB", {312e12, 1555e9}},
      {"A100-PCIE-40GB", {312e12, 1555e9}},
      {"A100 80GB PCIe", {312e12, 1935e9}},
      {"A100", {312e12, 2039e9}},
      {"V100", {125e12, 900e9}},
      {"L40S", {362e12, 864e9}},
  };
  for (const auto& [name, peaks] : known)
    if (device.find(name) != std::string::npos) return peaks;
  return std::nullopt;
}

}  // namespace dstune
