#include "calls.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "machine.hpp"

namespace dstune::emulated {
namespace {

/// As much as CUDA takes of an H200, about.
constexpr std::size_t context_bytes = std::size_t{512} << 20;

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::vector<std::shared_ptr<Capture>> captures_of_thread;

std::set<int>& contexts() {
  static std::set<int> devices;
  return devices;
}

}  // namespace

int& current_device() {
  return device_of_thread;
}

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t context_error() {
  if (machine().gpus == 0) return cudaErrorNoDevice;
  Engine::instance().come_back_unless_hung();
  if (Engine::instance().fault() != 0) return static_cast<cudaError_t>(Engine::instance().fault());
  if (contexts().contains(device_of_thread)) return cudaSuccess;
  if (!take_bytes(device_of_thread, context_bytes)) return cudaErrorMemoryAllocation;
  contexts().insert(device_of_thread);
  return cudaSuccess;
}

CUstream_st* find(cudaStream_t stream) {
  Engine& engine = Engine::instance();
  CUstream_st* const found = stream == nullptr ? engine.default_stream(device_of_thread) : stream;
  const bool is_there = engine.knows(found) && !found->is_leaving;
  return is_there && found->device == device_of_thread ? found : nullptr;
}

void capture_node(CUstream_st& stream, CUgraphNode_st node) {
  node.after = stream.last;
  stream.last = {stream.capture->graph->nodes.size()};
  stream.capture->graph->nodes.push_back(std::move(node));
}

cudaError_t ask(CUstream_st& stream, Task task) {
  if (stream.capture == nullptr) {
    Engine::instance().ask(stream, std::move(task));
    return cudaSuccess;
  }
  if (stream.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  capture_node(stream, {.task = std::move(task), .event = nullptr, .after = {}});
  return cudaSuccess;
}

cudaError_t forbid_in_capture() {
  if (captures_of_thread.empty()) return cudaSuccess;
  for (const auto& capture : captures_of_thread) capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

void begin_of_thread(const std::shared_ptr<Capture>& capture) {
  captures_of_thread.push_back(capture);
}

void end_of_thread(const Capture& capture) {
  std::erase_if(captures_of_thread, [&](const auto& one) { return one.get() == &capture; });
}

cudaError_t ask_stream(cudaStream_t stream, Task task) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return error;
  CUstream_st* const found = find(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  Engine::instance().wait_for_room(lock, *found);
  return ask(*found, std::move(task));
}

cudaError_t ask_stream_in_order(cudaStream_t stream, CUevent_st& order, Task task) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return error;
  CUstream_st* const found = find(stream);
  if (found == nullptr) return cudaErrorInvalidResourceHandle;
  Engine::instance().wait_for_room(lock, *found);
  const bool is_captured = found->capture != nullptr;
  if (!is_captured) {
    Engine::instance().ask(*found, waiting_for(order));
  } else if (order.capture == found->capture) {
    found->last.insert(found->last.end(), order.nodes.begin(), order.nodes.end());
  }
  if (const cudaError_t error = ask(*found, std::move(task))) return error;
  if (is_captured) {
    // Launches of the graph come before what is asked for after them, too.
    capture_node(*found, {.task = {}, .event = &order, .after = {}});
    order.capture = found->capture;
    order.nodes = found->last;
  } else {
    Engine::instance().ask(*found, reaching(order));
  }
  return cudaSuccess;
}

bool is_reached(const CUevent_st& order) {
  const auto lock = Engine::instance().locked();
  return order.reached >= order.recorded || Engine::instance().fault() != 0;
}

bool is_fault() {
  const auto lock = Engine::instance().locked();
  return Engine::instance().fault() != 0;
}

cudaError_t ask_stream_to(cudaStream_t stream, std::function<void()> work) {
  return ask_stream(stream, [work = std::move(work)]() -> Turn {
    return [&work] {
      work();
      return true;
    };
  });
}

}  // namespace dstune::emulated

using namespace dstune::emulated;

/// What cudaGetLastError() gives.
extern "C" cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

extern "C" cudaError_t cudaPeekAtLastError() {
  return last_error;
}
