#pragma once
/// The most that known devices can do. Local.

#include <optional>
#include <string>

namespace dstune {

/// The vendor's figures: bf16 products (fp16 before Ampere, dense) in operations a second, memory
/// in bytes a second.
struct DevicePeaks {
  double flops = 0, memory_bytes = 0;
};
/// The peaks of a device by its description or name; nothing for what is not known.
[[nodiscard]] std::optional<DevicePeaks> peaks_of(const std::string& device);

}  // namespace dstune
