#pragma once
/// What the libraries' callers need of the GPU; the tests have another one.

#include <cstddef>
#include <functional>

#include <driver_types.h>

namespace dstune::kernels::cuda {

class Gpu {
 public:
  virtual ~Gpu() = default;

  /// The calling thread's device and stream.
  virtual int device() = 0;
  virtual cudaStream_t stream() = 0;
  /// Whether the stream records a graph, so that nothing can be waited for.
  virtual bool is_recording() = 0;

  /// The time that the work takes on the stream; waits for it.
  virtual double seconds_of(const std::function<void()>& work) = 0;

  /// Memory on the device, or null where there is too little.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory) = 0;
  /// What of the device's memory is free.
  virtual std::size_t free_bytes() = 0;
};

}  // namespace dstune::kernels::cuda
