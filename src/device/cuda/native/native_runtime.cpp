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
cudaGraph_t graph_of(Graph graph) {
  return static_cast<cudaGraph_t>(graph);
}
cudaGraphExec_t executable_of(ExecutableGraph executable) {
  return static_cast<cudaGraphExec_t>(executable);
}

/// As nvidia-smi and NVML write that of a whole GPU: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".
std::string uuid_text(const cudaUUID_t& uuid) {
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
      properties = {found.name, uuid_text(found.uuid), found.multiProcessorCount,
                    10 * found.major + found.minor};
    return code;
  }
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
  Code query(Event event) override {
    const Code code = cudaEventQuery(event_of(event));
    // No error, says CUDA's guide; where it is kept as one all the same, the next launch finds it.
    if (code == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();
    return code;
  }
  Code get_milliseconds(float& milliseconds, Event first, Event second) override {
    return cudaEventElapsedTime(&milliseconds, event_of(first), event_of(second));
  }
  Code copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
  }

  Code begin_capture(Stream stream) override {
    return cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal);
  }
  Code end_capture(Stream stream, Graph& graph) override {
    cudaGraph_t captured = nullptr;
    const Code code = cudaStreamEndCapture(stream_of(stream), &captured);
    graph = captured;
    return code;
  }
  Code record_in_graph(Event event, Stream stream) override {
    return cudaEventRecordWithFlags(event_of(event), stream_of(stream), cudaEventRecordExternal);
  }
  Code get_event_nodes(Graph graph, std::vector<EventNode>& nodes) override {
    std::size_t count = 0;
    if (const Code code = cudaGraphGetNodes(graph_of(graph), nullptr, &count)) return code;
    std::vector<cudaGraphNode_t> all(count);
    if (const Code code = cudaGraphGetNodes(graph_of(graph), all.data(), &count)) return code;
    nodes.clear();
    for (const cudaGraphNode_t node : all) {
      cudaGraphNodeType type{};
      if (const Code code = cudaGraphNodeGetType(node, &type)) return code;
      if (type != cudaGraphNodeTypeEventRecord) continue;
      cudaEvent_t event = nullptr;
      if (const Code code = cudaGraphEventRecordNodeGetEvent(node, &event)) return code;
      nodes.push_back({node, event});
    }
    return cudaSuccess;
  }
  Code instantiate(ExecutableGraph& executable, Graph graph) override {
    cudaGraphExec_t made = nullptr;
    const Code code = cudaGraphInstantiate(&made, graph_of(graph), 0);
    executable = made;
    return code;
  }
  Code upload(ExecutableGraph executable, Stream stream) override {
    return cudaGraphUpload(executable_of(executable), stream_of(stream));
  }
  Code set_event(ExecutableGraph executable, Node node, Event event) override {
    return cudaGraphExecEventRecordNodeSetEvent(
        executable_of(executable), static_cast<cudaGraphNode_t>(node), event_of(event));
  }
  Code launch(ExecutableGraph executable, Stream stream) override {
    return cudaGraphLaunch(executable_of(executable), stream_of(stream));
  }
  Code destroy_executable(ExecutableGraph executable) override {
    return cudaGraphExecDestroy(executable_of(executable));
  }
  Code destroy_graph(Graph graph) override { return cudaGraphDestroy(graph_of(graph)); }

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
