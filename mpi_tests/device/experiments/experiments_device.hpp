#pragma once

#include <optional>
#include <string>

#include "gpu_of_rank.hpp"

namespace dstune::test {

/// What experiments run on: the GPU of each rank, or the one that they share. Collective over the
/// world.
class ExperimentsDevice {
 public:
  /// Of a process, CUDA and its libraries in it, beside what it is asked to hold.
  static constexpr std::int64_t tide_bytes = 32 << 20;

  ExperimentsDevice() : found_(find_gpu_of_rank(host_bytes)) {
    // The workspace of products, and little more.
    if (found_.violation.empty()) found_.device->budget().set_limit_bytes(64 << 20);
  }
  [[nodiscard]] std::string violation() const { return found_.violation; }
  [[nodiscard]] Device& device() { return *found_.device; }
  [[nodiscard]] std::optional<DeviceGroupOptions> groups() {
    if (!found_.violation.empty()) return std::nullopt;
    return groups_on(found_);
  }

 private:
  static constexpr std::int64_t host_bytes = 64 << 20;

  GpuOfRank found_;
};

}  // namespace dstune::test
