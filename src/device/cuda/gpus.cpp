#include "gpus.hpp"

namespace dstune {
namespace cuda {
namespace {

bool succeeds(Runtime& runtime, Code code) {
  if (code != 0) runtime.forget_error();
  return code == 0;
}

}  // namespace

std::optional<CudaGpu> find_gpu(Runtime& runtime, int rank_of_node) {
  int visible = 0;
  if (!succeeds(runtime, runtime.count_devices(visible)) || visible == 0) return std::nullopt;
  const int number = choose_cuda_device(visible, rank_of_node);
  Properties properties;
  if (!succeeds(runtime, runtime.get_properties(number, properties))) return std::nullopt;
  return CudaGpu{.name = properties.name, .uuid = properties.uuid, .number = number};
}

std::map<std::string, bool> find_peers(Runtime& runtime, int number) {
  std::map<std::string, bool> peers;
  int visible = 0;
  if (!succeeds(runtime, runtime.count_devices(visible))) return peers;
  for (int other = 0; other < visible; ++other) {
    Properties properties;
    bool can = false;
    if (other != number && succeeds(runtime, runtime.get_properties(other, properties)) &&
        succeeds(runtime, runtime.can_access_peer(can, number, other)))
      peers[properties.uuid] = can;
  }
  return peers;
}

}  // namespace cuda

std::optional<CudaGpu> find_cuda_gpu(int rank_of_node) {
  cuda::Runtime* const runtime = cuda::native_runtime();
  return runtime == nullptr ? std::nullopt : cuda::find_gpu(*runtime, rank_of_node);
}

std::map<std::string, bool> cuda_peers(int number) {
  cuda::Runtime* const runtime = cuda::native_runtime();
  return runtime == nullptr ? std::map<std::string, bool>() : cuda::find_peers(*runtime, number);
}

std::optional<int> cuda_runtime_version() {
  cuda::Runtime* const runtime = cuda::native_runtime();
  int version = 0;
  if (runtime == nullptr || runtime->get_version(version) != 0) return std::nullopt;
  return version;
}

}  // namespace dstune
