#include "runtime.hpp"

#include <cstdint>

#include "dstune/base/error.hpp"

namespace dstune::cuda {
namespace {

constexpr std::int64_t page_bytes = 4096;

std::int64_t bytes_to_page(const void* memory) {
  const auto past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory) % page_bytes);
  return past == 0 ? 0 : page_bytes - past;
}

}  // namespace

#ifndef DSTUNE_HAS_CUDA
Runtime* native_runtime() {
  return nullptr;
}
#endif

bool has_lost_context(Runtime& runtime) {
  // An error that passes is forgotten after it was told once.
  constexpr int times = 2;
  for (int i = 0; i < times; ++i) {
    std::size_t free_bytes = 0, total_bytes = 0;
    if (runtime.get_memory(free_bytes, total_bytes) == 0) return false;
    runtime.forget_error();
  }
  return true;
}

void check(Runtime& runtime, Code code, const char* what, std::size_t bytes) {
  if (code == 0) return;
  std::string reason = "CUDA: " + runtime.text(code) + ", " + what;
  runtime.forget_error();
  if (code == runtime.out_of_memory()) {
    std::size_t free_bytes = 0, total_bytes = 0;
    if (runtime.get_memory(free_bytes, total_bytes) != 0) free_bytes = 0;
    throw OutOfMemory(bytes, free_bytes, reason);
  }
  if (has_lost_context(runtime)) reason += "; this process can not use the GPU any more";
  throw DeviceError(reason);
}

void* CudaMemory::allocate(std::int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  if (!is_pinned_) {
    check(runtime_, runtime_.allocate(memory, size), "taking memory of the GPU", size);
    return memory;
  }
  const char* const what = "pinning memory of the host";
  const Code code = runtime_.allocate_host(memory, size);
  if (code == runtime_.out_of_memory()) {
    runtime_.forget_error();
    // CUDA does not know what of the host's memory is free.
    throw OutOfMemory(size, 0, "CUDA: " + runtime_.text(code) + ", " + what);
  }
  check(runtime_, code, what, size);
  return memory;
}

void CudaMemory::free(void* memory) noexcept {
  if (is_pinned_) {
    runtime_.free_host(memory);
  } else {
    runtime_.free(memory);
  }
}

std::byte* CudaMemory::take(std::int64_t bytes) {
  void* memory = allocate(bytes);
  if (bytes_to_page(memory) == 0) return static_cast<std::byte*>(memory);
  // Small pieces share pages.
  free(memory);
  memory = allocate(bytes + page_bytes - 1);
  std::byte* const begin = static_cast<std::byte*>(memory) + bytes_to_page(memory);
  misplaced_[begin] = memory;
  return begin;
}

void CudaMemory::give_back(std::byte* begin, std::int64_t /*bytes*/) noexcept {
  if (runtime_.is_given_up()) return;
  const auto found = misplaced_.find(begin);
  if (found == misplaced_.end()) return free(begin);
  free(found->second);
  misplaced_.erase(found);
}

}  // namespace dstune::cuda
