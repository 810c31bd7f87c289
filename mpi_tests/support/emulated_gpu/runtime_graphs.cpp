// cuda_runtime_api.h: what streams are asked for, captured as graphs.
#include <algorithm>
#include <set>

#include <cuda_runtime_api.h>

#include "calls.hpp"
#include "machine.hpp"

using namespace dstune::emulated;

namespace {

/// What a graph takes of the GPU's memory until it is destroyed.
constexpr std::size_t graph_bytes = std::size_t{2} << 20;

/// Whether the stream comes after everything that was captured.
bool has_joined_all(const CUstream_st& origin) {
  const auto& nodes = origin.capture->graph->nodes;
  std::set<std::size_t> before;
  std::vector<std::size_t> open = origin.last;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (!before.insert(node).second) continue;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return before.size() == nodes.size();
}

CUgraphNode_st* find_node(CUgraphExec_st& executable, const CUgraphNode_st* origin) {
  const auto found = std::ranges::find(executable.origins, origin);
  if (found == executable.origins.end()) return nullptr;
  return &executable.nodes[static_cast<std::size_t>(found - executable.origins.begin())];
}

cudaError_t take_graph(CUgraphExec_st& executable) {
  if (executable.is_uploaded) return cudaSuccess;
  if (!take_bytes(executable.device, graph_bytes)) return cudaErrorMemoryAllocation;
  executable.is_uploaded = true;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  CUstream_st* const found = stream == nullptr ? nullptr : find(stream);
  if (found == nullptr) return said(cudaErrorStreamCaptureUnsupported);
  if (found->capture != nullptr || mode != cudaStreamCaptureModeThreadLocal)
    return said(cudaErrorIllegalState);
  found->capture = std::make_shared<Capture>();
  found->capture->origin = found;
  found->capture->thread = std::this_thread::get_id();
  found->last.clear();
  begin_of_thread(found->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const auto lock = Engine::instance().locked();
  *graph = nullptr;
  CUstream_st* const found = find(stream);
  if (found == nullptr) return said(cudaErrorInvalidResourceHandle);
  if (found->capture == nullptr) return said(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = found->capture;
  if (capture->thread != std::this_thread::get_id()) return said(cudaErrorStreamCaptureWrongThread);
  if (capture->origin != found) return said(cudaErrorStreamCaptureUnmatched);
  const bool is_joined = has_joined_all(*found);
  end_of_thread(*capture);
  capture->is_over = true;
  Engine::instance().each_stream([&](CUstream_st& one) {
    if (one.capture != capture) return;
    one.capture = nullptr;
    one.last.clear();
  });
  if (capture->is_invalid) return said(cudaErrorStreamCaptureInvalidated);
  if (!is_joined) return said(cudaErrorStreamCaptureUnjoined);
  *graph = capture->graph.release();
  return said(context_error());
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto lock = Engine::instance().locked();
  const CUstream_st* const found = find(stream);
  if (found == nullptr) return said(cudaErrorInvalidResourceHandle);
  *status = cudaStreamCaptureStatusNone;
  if (found->capture != nullptr)
    *status = found->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  return said(context_error());
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const std::size_t all = graph->nodes.size();
  if (nodes == nullptr) {
    *count = all;
    return cudaSuccess;
  }
  for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < all ? &graph->nodes[i] : nullptr;
  *count = std::min(*count, all);
  return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->event == nullptr ? cudaGraphNodeTypeKernel : cudaGraphNodeTypeEventRecord;
  return cudaSuccess;
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  if (node->event == nullptr) return said(cudaErrorInvalidValue);
  *event = node->event;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  auto* const made = new CUgraphExec_st;
  made->device = current_device();
  for (const CUgraphNode_st& node : graph->nodes) {
    made->nodes.push_back(node);
    made->origins.push_back(&node);
  }
  *executable = made;
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  const auto lock = Engine::instance().locked();
  if (find(stream) == nullptr) return said(cudaErrorInvalidResourceHandle);
  return said(take_graph(*executable));
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node,
                                                 cudaEvent_t event) {
  const auto lock = Engine::instance().locked();
  CUgraphNode_st* const found = find_node(*executable, node);
  if (found == nullptr || found->event == nullptr || event->device != executable->device)
    return said(cudaErrorInvalidValue);
  found->event = event;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  CUstream_st* const found = find(stream);
  if (found == nullptr) return said(cudaErrorInvalidResourceHandle);
  Engine::instance().wait_for_room(lock, *found);
  if (const cudaError_t error = take_graph(*executable)) return said(error);
  return said(ask(*found, launching(*executable)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const auto lock = Engine::instance().locked();
  if (executable->is_uploaded) give_back_bytes(executable->device, graph_bytes);
  delete executable;
  return said(context_error());
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const auto lock = Engine::instance().locked();
  delete graph;
  return said(context_error());
}

}  // extern "C"
