#include "runtime.hpp"

#include "dstune/base/error.hpp"

namespace dstune::cuda {

bool has_lost_context(Runtime& runtime) {
  // What passes is forgotten after it was told once.
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

}  // namespace dstune::cuda
