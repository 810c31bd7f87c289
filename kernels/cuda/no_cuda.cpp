// The functions of dstune/kernels/cuda.hpp in a build without CUDA.
#include "dstune/kernels/cuda.hpp"

namespace dstune::kernels {

std::string cuda_toolkit() {
  return {};
}

int num_cuda_devices() {
  return 0;
}

const Table* cuda_table() {
  return nullptr;
}

CudaLibraries cuda_libraries() {
  return {};
}

void set_cuda_library_folders(std::vector<std::string> /*folders*/) {}

CudaChoices take_new_cuda_choices() {
  return {};
}

void adopt_cuda_choices(const CudaChoices& /*choices*/) {}

int load_cuda_kernels() {
  return 0;
}

void set_cuda_stream(void* /*stream*/) {}

}  // namespace dstune::kernels
