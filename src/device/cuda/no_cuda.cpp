// A build without CUDA.
#include "runtime.hpp"

namespace dstune::cuda {

Runtime* native_runtime() {
  return nullptr;
}

}  // namespace dstune::cuda
