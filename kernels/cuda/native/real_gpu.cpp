#include "real_gpu.hpp"

#include <cuda_runtime_api.h>

#include "stream.hpp"

namespace dstune::kernels::cuda {
namespace {

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t on) { check(cudaEventRecord(event_, on)); }
  void wait() { check(cudaEventSynchronize(event_)); }
  [[nodiscard]] double seconds_since(const Event& earlier) const {
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

int RealGpu::device() {
  int device = 0;
  check(cudaGetDevice(&device));
  return device;
}

cudaStream_t RealGpu::stream() {
  return cuda::stream();
}

bool RealGpu::is_recording() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(cuda::stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

double RealGpu::seconds_of(const std::function<void()>& work) {
  Event begin;
  Event end;
  begin.record(cuda::stream());
  work();
  end.record(cuda::stream());
  end.wait();
  return end.seconds_since(begin);
}

void* RealGpu::take(std::size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  cudaGetLastError();  // or the next launch would report it
  return nullptr;
}

void RealGpu::give_back(void* memory) {
  cudaFree(memory);
}

std::size_t RealGpu::free_bytes() {
  std::size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes));
  return free_bytes;
}

}  // namespace dstune::kernels::cuda
