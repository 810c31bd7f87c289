#include <stdexcept>
#include <string>

#include <cuda_runtime_api.h>

#include "dstune/kernels/cuda.hpp"
#include "stream.hpp"

namespace dstune::kernels {
namespace cuda {

extern const Table table;

namespace {

thread_local cudaStream_t current_stream = nullptr;

}  // namespace

cudaStream_t stream() {
  return current_stream;
}

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorName(error) + ": " +
                             cudaGetErrorString(error));
  }
}

}  // namespace cuda

std::string cuda_toolkit() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

int num_cuda_devices() {
  // Without a driver the argument stays as it is.
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess) return devices;
  cudaGetLastError();  // or the next launch would report it
  return 0;
}

const Table* cuda_table() {
  return num_cuda_devices() > 0 ? &cuda::table : nullptr;
}

void set_cuda_stream(void* stream) {
  cuda::current_stream = static_cast<cudaStream_t>(stream);
}

}  // namespace dstune::kernels
