#pragma once
/// An NVIDIA GPU as a device: memory of its own, streams, pinned memory of its host. Local.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "dstune/device/device.hpp"

namespace dstune {

/// Tells why no training step can run on CUDA here: what the build, the machine or the kernels
/// lack. Empty where one can.
std::string cuda_unavailable_reason();

/// The first library that a training step on a GPU needs and that is missing, with the reason:
/// "cuDNN: …". Empty where all are there.
std::string missing_gpu_library();

/// Chooses a rank's GPU among those that its process sees. The ranks of a node take them in turn. A
/// process may see only one (CUDA_VISIBLE_DEVICES, a part of a GPU that it was given): that one.
[[nodiscard]] constexpr int choose_cuda_device(int visible, int rank_of_node) {
  return rank_of_node % visible;
}

/// A GPU as CUDA names it.
struct CudaGpu {
  std::string name;             ///< "NVIDIA H200"
  std::string uuid;             ///< ranks with the same one share it
  int number = 0;               ///< among the GPUs that the process sees, in CUDA's order
  std::int64_t free_bytes = 0;  ///< with the context and the libraries there, for any user
  /// The memory that these two took, as it was seen to become less; nothing if nobody told.
  std::optional<std::int64_t> context_bytes{}, library_bytes{};
};

/// The rank's GPU, which is the calling thread's from now on. Its limit is 97 % of the memory that
/// is free once the context is there and the libraries were used. The rest is for kernels that are
/// loaded at their first use, for communicators, and for gaps. `gpu`, where given, is what it is.
/// Throws DeviceError with cuda_unavailable_reason(), or CUDA's words.
std::unique_ptr<Device> make_cuda_device(int rank_of_node, std::int64_t host_limit_bytes,
                                         int threads, CudaGpu* gpu = nullptr);

/// For a rank that only plans: with the kernels' workspaces and the words of the GPU that
/// make_cuda_device would take, memory of the host, and no context on any GPU. Nothing may be
/// computed on it. `gpu` has its name alone. Throws likewise.
std::unique_ptr<Device> make_device_like_cuda(int rank_of_node, std::int64_t host_limit_bytes,
                                              int threads, CudaGpu* gpu = nullptr);

/// The GPU that make_cuda_device would take, by its name, UUID and number: asks for no context.
/// Nothing where no GPU answers.
std::optional<CudaGpu> find_cuda_gpu(int rank_of_node);
/// Tells for each other GPU that the process sees, by UUID, whether the GPU of that number may read
/// and write its memory. Makes no context.
std::map<std::string, bool> cuda_peers(int number);
/// The CUDA that the program was built with, 13000 for 13.0; nothing in a build without it.
std::optional<int> cuda_runtime_version();

/// Tells whether this process has given its GPU up (Device::drain), or did at its first use: it
/// ends by _exit then.
bool has_given_up_cuda();

/// Free memory of the calling thread's GPU, now; 0 if CUDA does not say.
std::int64_t free_cuda_bytes();

}  // namespace dstune
