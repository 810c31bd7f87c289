#pragma once

#include "dstune/device/cuda.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

class CudaDevice : public Device {
 public:
  /// As make_cuda_device, of any runtime and table.
  CudaDevice(Runtime& runtime, const kernels::Table& table, int rank_of_node,
             std::int64_t host_limit_bytes, int threads, CudaGpu* gpu);

  [[nodiscard]] bool is_lost() override { return has_lost_context(runtime_); }

 private:
  static Parts parts(Runtime& runtime, const kernels::Table& table, int rank_of_node,
                     std::int64_t host_limit_bytes, int threads, CudaGpu* gpu);

  Runtime& runtime_;
};

/// The functions that a table lacks, "matmul, quantize"; empty where it is whole.
std::string missing_kernels(const kernels::Table& table);

}  // namespace dstune::cuda
