#include <limits>

#include "dstune/base/error.hpp"
#include "dstune/device/device.hpp"

namespace dstune {

CpuDevice::CpuDevice(std::int64_t memory_limit_bytes, int threads)
    : kernels_(&kernels::cpu_table()),
      threads_(threads),
      budget_(memory_limit_bytes),
      arena_(budget_),
      host_budget_(memory_limit_bytes),
      host_arena_(host_budget_),
      disk_budget_(std::numeric_limits<std::int64_t>::max(), "disk budget"),
      description_("cpu (" + processor_name() + ", " + kernels_->name + ", " +
                   std::to_string(threads) + (threads == 1 ? " thread)" : " threads)")) {
  require(threads >= 1, "a device needs a thread");
  kernels::set_cpu_threads(threads);
}

}  // namespace dstune
