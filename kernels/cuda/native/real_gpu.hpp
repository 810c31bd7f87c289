#pragma once
/// The GPU through CUDA's runtime.

#include "libraries/gpu.hpp"

namespace dstune::kernels::cuda {

class RealGpu : public Gpu {
 public:
  int device() override;
  cudaStream_t stream() override;
  bool is_recording() override;
  double seconds_of(const std::function<void()>& work) override;
  void* take(std::size_t bytes) override;
  void give_back(void* memory) override;
  std::size_t free_bytes() override;
};

}  // namespace dstune::kernels::cuda
