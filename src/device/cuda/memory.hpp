#pragma once
/// Memory of a GPU, and pinned memory of its host.

#include <map>

#include "dstune/device/memory.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

/// From multiples of 4096 on, also where CUDA, which promises 256, begins in between.
class CudaMemory : public MemorySource {
 public:
  std::byte* take(std::int64_t bytes) override;
  void give_back(std::byte* begin, std::int64_t bytes) noexcept override;

 protected:
  /// `what`: is done when memory is taken.
  CudaMemory(Runtime& runtime, const char* what) : runtime_(runtime), what_(what) {}
  virtual Code allocate(void*& memory, std::size_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;

  Runtime& runtime_;

 private:
  void* taken(std::int64_t bytes);

  const char* what_;
  std::map<std::byte*, void*> misplaced_;  ///< what lies in a larger piece, and that
};

class DeviceMemory : public CudaMemory {
 public:
  explicit DeviceMemory(Runtime& runtime) : CudaMemory(runtime, "taking memory of the GPU") {}

 private:
  Code allocate(void*& memory, std::size_t bytes) override {
    return runtime_.allocate(memory, bytes);
  }
  void free(void* memory) noexcept override { runtime_.free(memory); }
};

class PinnedMemory : public CudaMemory {
 public:
  explicit PinnedMemory(Runtime& runtime) : CudaMemory(runtime, "pinning memory of the host") {}

 private:
  Code allocate(void*& memory, std::size_t bytes) override;
  void free(void* memory) noexcept override { runtime_.free_host(memory); }
};

}  // namespace dstune::cuda
