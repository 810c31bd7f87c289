#include <cuda_runtime_api.h>

#include "cuda/runtime.hpp"

namespace dstune::cuda {
namespace {

cudaStream_t stream_of(Stream stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t event_of(Event event) {
  return static_cast<cudaEvent_t>(event);
}

/// As nvidia-smi and NVML write that of a whole GPU: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
std::string text_of(const cudaUUID_t& uuid) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto value = static_cast<unsigned char>(uuid.bytes[i]);
    text += digits[value / 16];
    text += digits[value % 16];
  }
  return text;
}

class NativeRuntime : public Runtime {
 public:
  Code count_devices(int& count) override { return cudaGetDeviceCount(&count); }
  Code set_device(int device) override { return cudaSetDevice(device); }
  Code get_properties(int device, Properties& properties) override {
    cudaDeviceProp found{};
    const Code code = cudaGetDeviceProperties(&found, device);
    if (code == cudaSuccess)
      properties = {found.name, text_of(found.uuid), found.multiProcessorCount};
    return code;
  }
  Code get_memory(std::size_t& free_bytes, std::size_t& total_bytes) override {
    return cudaMemGetInfo(&free_bytes, &total_bytes);
  }

  Code allocate(void*& memory, std::size_t bytes) override { return cudaMalloc(&memory, bytes); }
  Code free(void* memory) override { return cudaFree(memory); }
  Code allocate_host(void*& memory, std::size_t bytes) override {
    return cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  }
  Code free_host(void* memory) override { return cudaFreeHost(memory); }

  Code create_stream(Stream& stream) override {
    cudaStream_t made = nullptr;
    const Code code = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    stream = made;
    return code;
  }
  Code destroy_stream(Stream stream) override { return cudaStreamDestroy(stream_of(stream)); }
  Code create_event(Event& event, bool takes_time) override {
    cudaEvent_t made = nullptr;
    const Code code =
        cudaEventCreateWithFlags(&made, takes_time ? cudaEventDefault : cudaEventDisableTiming);
    event = made;
    return code;
  }
  Code destroy_event(Event event) override { return cudaEventDestroy(event_of(event)); }
  Code record(Event event, Stream stream) override {
    return cudaEventRecord(event_of(event), stream_of(stream));
  }
  Code wait(Stream stream, Event event) override {
    return cudaStreamWaitEvent(stream_of(stream), event_of(event), 0);
  }
  Code query(Event event) override { return cudaEventQuery(event_of(event)); }
  Code get_milliseconds(float& milliseconds, Event first, Event second) override {
    return cudaEventElapsedTime(&milliseconds, event_of(first), event_of(second));
  }
  Code copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
  }

  void forget_error() override { cudaGetLastError(); }
  [[nodiscard]] std::string text(Code code) const override {
    const auto error = static_cast<cudaError_t>(code);
    return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  }
  [[nodiscard]] Code not_ready() const override { return cudaErrorNotReady; }
  [[nodiscard]] Code out_of_memory() const override { return cudaErrorMemoryAllocation; }
};

}  // namespace

Runtime* native_runtime() {
  static NativeRuntime runtime;
  return &runtime;
}

}  // namespace dstune::cuda
