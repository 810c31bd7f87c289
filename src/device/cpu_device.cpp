#include "cpu_queues.hpp"
#include "dstune/base/error.hpp"
#include "dstune/device/device.hpp"

namespace dstune {

CpuDevice::CpuDevice(std::int64_t memory_limit_bytes, int threads)
    : Device({.kernels = &kernels::cpu_table(),
              .memory = std::make_unique<SystemMemory>(),
              .host_memory = std::make_unique<SystemMemory>(),
              .queues = std::make_unique<CpuQueues>(kernels::cpu_table()),
              .limit_bytes = memory_limit_bytes,
              .host_limit_bytes = memory_limit_bytes,
              .threads = threads,
              .description = "cpu (" + processor_name() + ", " + kernels::cpu_table().name + ", " +
                             std::to_string(threads) + (threads == 1 ? " thread)" : " threads)")}) {
  require(threads >= 1, "a device needs a thread");
  kernels::set_cpu_threads(threads);
}

}  // namespace dstune
