#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include "cuda/runtime.hpp"

namespace dstune::cuda {
namespace {

/// Writes it as nvidia-smi and NVML write that of a whole GPU:
/// "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
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
      properties = {found.name, uuid_text(found.uuid), 10 * found.major + found.minor};
    return code;
  }
  Code can_access_peer(bool& can, int device, int other) override {
    int answer = 0;
    const Code code = cudaDeviceCanAccessPeer(&answer, device, other);
    can = answer != 0;
    return code;
  }
  Code get_version(int& version) override { return cudaRuntimeGetVersion(&version); }
  Code get_memory(std::size_t& free_bytes, std::size_t& total_bytes) override {
    return cudaMemGetInfo(&free_bytes, &total_bytes);
  }
  Code synchronize() override { return cudaDeviceSynchronize(); }

  Code allocate(void*& memory, std::size_t bytes) override { return cudaMalloc(&memory, bytes); }
  Code free(void* memory) override { return cudaFree(memory); }
  Code allocate_host(void*& memory, std::size_t bytes) override {
    return cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  }
  Code free_host(void* memory) override { return cudaFreeHost(memory); }

  Code create_stream(Stream& stream) override {
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  Code destroy_stream(Stream stream) override { return cudaStreamDestroy(stream); }
  Code create_event(Event& event, bool takes_time) override {
    return cudaEventCreateWithFlags(&event, takes_time ? cudaEventDefault : cudaEventDisableTiming);
  }
  Code destroy_event(Event event) override { return cudaEventDestroy(event); }
  Code record(Event event, Stream stream) override { return cudaEventRecord(event, stream); }
  Code wait(Stream stream, Event event) override { return cudaStreamWaitEvent(stream, event, 0); }
  Code query(Event event) override {
    const Code code = cudaEventQuery(event);
    // No error, says CUDA's guide; where it is kept as one all the same, the next launch finds it.
    if (code == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
    return code;
  }
  void begin_range(const char* name) override { nvtxRangePushA(name); }
  void end_range() noexcept override { nvtxRangePop(); }
  Code get_milliseconds(float& milliseconds, Event first, Event second) override {
    return cudaEventElapsedTime(&milliseconds, first, second);
  }
  Code copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  }

  Code begin_capture(Stream stream) override {
    return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  }
  Code end_capture(Stream stream, Graph& graph) override {
    return cudaStreamEndCapture(stream, &graph);
  }
  Code record_in_graph(Event event, Stream stream) override {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal);
  }
  Code get_event_nodes(Graph graph, std::vector<EventNode>& nodes) override {
    std::size_t count = 0;
    if (const Code code = cudaGraphGetNodes(graph, nullptr, &count)) return code;
    std::vector<Node> all(count);
    if (const Code code = cudaGraphGetNodes(graph, all.data(), &count)) return code;
    nodes.clear();
    for (const Node node : all) {
      cudaGraphNodeType type{};
      if (const Code code = cudaGraphNodeGetType(node, &type)) return code;
      if (type != cudaGraphNodeTypeEventRecord) continue;
      Event event = nullptr;
      if (const Code code = cudaGraphEventRecordNodeGetEvent(node, &event)) return code;
      nodes.push_back({node, event});
    }
    return cudaSuccess;
  }
  Code instantiate(ExecutableGraph& executable, Graph graph) override {
    return cudaGraphInstantiate(&executable, graph, 0);
  }
  Code upload(ExecutableGraph executable, Stream stream) override {
    return cudaGraphUpload(executable, stream);
  }
  Code set_event(ExecutableGraph executable, Node node, Event event) override {
    return cudaGraphExecEventRecordNodeSetEvent(executable, node, event);
  }
  Code launch(ExecutableGraph executable, Stream stream) override {
    return cudaGraphLaunch(executable, stream);
  }
  Code destroy_executable(ExecutableGraph executable) override {
    return cudaGraphExecDestroy(executable);
  }
  Code destroy_graph(Graph graph) override { return cudaGraphDestroy(graph); }

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
