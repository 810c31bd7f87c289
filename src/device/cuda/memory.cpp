#include "memory.hpp"

#include "dstune/base/error.hpp"

namespace dstune::cuda {
namespace {

std::byte* taken(Runtime& runtime, Code code, void* memory, std::int64_t bytes, const char* what) {
  if (code == runtime.out_of_memory()) {
    runtime.forget_error();
    std::size_t free_bytes = 0, total_bytes = 0;
    // Of the host's memory CUDA does not know what is free.
    if (runtime.get_memory(free_bytes, total_bytes) != 0) free_bytes = 0;
    throw OutOfMemory(static_cast<std::size_t>(bytes), free_bytes,
                      "CUDA: " + runtime.text(code) + ", " + what);
  }
  check(runtime, code, what);
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::byte* DeviceMemory::take(std::int64_t bytes) {
  void* memory = nullptr;
  const Code code = runtime_.allocate(memory, static_cast<std::size_t>(bytes));
  return taken(runtime_, code, memory, bytes, "taking memory of the GPU");
}

void DeviceMemory::give_back(std::byte* begin, std::int64_t /*bytes*/) noexcept {
  runtime_.free(begin);
}

std::byte* PinnedMemory::take(std::int64_t bytes) {
  void* memory = nullptr;
  const Code code = runtime_.allocate_host(memory, static_cast<std::size_t>(bytes));
  return taken(runtime_, code, memory, bytes, "pinning memory of the host");
}

void PinnedMemory::give_back(std::byte* begin, std::int64_t /*bytes*/) noexcept {
  runtime_.free_host(begin);
}

}  // namespace dstune::cuda
