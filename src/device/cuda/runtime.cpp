#include "runtime.hpp"

#include "dstune/base/error.hpp"

namespace dstune::cuda {

void check(Runtime& runtime, Code code, const char* what) {
  if (code == 0) return;
  std::string reason = "CUDA: " + runtime.text(code) + ", " + what;
  runtime.forget_error();
  // What corrupts the context is what every later call reports.
  std::size_t free_bytes = 0, total_bytes = 0;
  if (runtime.get_memory(free_bytes, total_bytes) == code)
    reason += "; this process can not use the GPU any more";
  throw DeviceError(reason);
}

}  // namespace dstune::cuda
