// The GPU through CUDA's runtime.
#include <map>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

#include "libraries/candidates.hpp"
#include "stream.hpp"

namespace dstune::kernels::cuda {
namespace {

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class RealGpu : public Gpu {
 public:
  int device() override {
    int device = 0;
    check(cudaGetDevice(&device));
    return device;
  }

  std::string name() override {
    const int number = device();
    const std::lock_guard lock(mutex_);
    std::string& name = names_[number];
    if (!name.empty()) return name;
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, number));
    return name = std::string(properties.name) + " " + std::to_string(properties.major) + "." +
                  std::to_string(properties.minor);
  }

  cudaStream_t stream() override { return cuda::stream(); }

  bool is_recording() override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(cuda::stream(), &status));
    return status != cudaStreamCaptureStatusNone;
  }

  double seconds_of(const std::function<void()>& work) override {
    Event begin;
    Event end;
    check(cudaEventRecord(begin.get(), cuda::stream()));
    work();
    check(cudaEventRecord(end.get(), cuda::stream()));
    check(cudaEventSynchronize(end.get()));
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    return milliseconds * 1e-3;
  }

  void* take(std::size_t bytes) override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
    cudaGetLastError();  // or the next launch would report it
    return nullptr;
  }

  void give_back(void* memory) override { cudaFree(memory); }

  std::size_t free_bytes() override {
    std::size_t free_bytes = 0, total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes;
  }

  std::size_t cache_bytes() override {
    int bytes = 0;
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device()));
    return static_cast<std::size_t>(bytes);
  }

  void fill(void* memory, std::size_t bytes) override { set_to_zero(memory, bytes); }

 private:
  std::mutex mutex_;
  std::map<int, std::string> names_;  ///< by device: asking CUDA takes milliseconds
};

}  // namespace

Gpu& real_gpu() {
  static RealGpu gpu;
  return gpu;
}

}  // namespace dstune::kernels::cuda
