#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dstune/device/device.hpp"
#include "dstune/group/device_groups.hpp"

namespace dstune::test {

/// What experiments run on: the processor.
class ExperimentsDevice {
 public:
  /// Of a process beside what it is asked to hold.
  static constexpr std::int64_t tide_bytes = 2 << 20;

  [[nodiscard]] std::string violation() const { return {}; }
  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] std::optional<DeviceGroupOptions> groups() { return std::nullopt; }

 private:
  CpuDevice device_{8 << 20, 1};
};

}  // namespace dstune::test
