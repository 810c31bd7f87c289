#include "memory.hpp"

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

void* CudaMemory::taken(std::int64_t bytes) {
  void* memory = nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  check(runtime_, allocate(memory, size), what_, size);
  return memory;
}

std::byte* CudaMemory::take(std::int64_t bytes) {
  void* memory = taken(bytes);
  if (bytes_to_page(memory) == 0) return static_cast<std::byte*>(memory);
  // Small pieces share pages.
  free(memory);
  memory = taken(bytes + page_bytes - 1);
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

Code PinnedMemory::allocate(void*& memory, std::size_t bytes) {
  const Code code = runtime_.allocate_host(memory, bytes);
  if (code != runtime_.out_of_memory()) return code;
  runtime_.forget_error();
  // What of the host's memory is free CUDA does not know.
  throw OutOfMemory(bytes, 0, "CUDA: " + runtime_.text(code) + ", pinning memory of the host");
}

}  // namespace dstune::cuda
