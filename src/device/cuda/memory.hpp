#pragma once
/// Memory of a GPU, and pinned memory of its host.

#include "dstune/device/memory.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

class DeviceMemory : public MemorySource {
 public:
  explicit DeviceMemory(Runtime& runtime) : runtime_(runtime) {}
  std::byte* take(std::int64_t bytes) override;
  void give_back(std::byte* begin, std::int64_t bytes) noexcept override;

 private:
  Runtime& runtime_;
};

class PinnedMemory : public MemorySource {
 public:
  explicit PinnedMemory(Runtime& runtime) : runtime_(runtime) {}
  std::byte* take(std::int64_t bytes) override;
  void give_back(std::byte* begin, std::int64_t bytes) noexcept override;

 private:
  Runtime& runtime_;
};

}  // namespace dstune::cuda
