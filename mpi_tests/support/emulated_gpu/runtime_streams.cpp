// cuda_runtime_api.h: devices, memory, streams, events.
#include <cstdlib>
#include <cstring>
#include <string>

#include <cuda_runtime_api.h>

#include "calls.hpp"
#include "machine.hpp"
#include "memory.hpp"

using namespace dstune::emulated;

namespace {

/// The calling thread may call what the capture of a stream forbids, and has a context.
cudaError_t usual_error() {
  if (const cudaError_t error = forbid_in_capture()) return error;
  return context_error();
}

/// Waits until the stream has done what it was asked for.
cudaError_t finish(cudaStream_t stream) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  const CUstream_st* const found = find(stream);
  Engine::instance().wait_until(lock, [&] { return found->tasks.empty(); });
  return said(context_error());
}

}  // namespace

extern "C" {

// --- Devices
// --------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  if (machine().gpus == 0) return said(cudaErrorNoDevice);
  if (machine().cuda_version / 1000 < CUDART_VERSION / 1000)
    return said(cudaErrorInsufficientDriver);
  *count = machine().gpus;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const auto lock = Engine::instance().locked();
  if (device < 0 || device >= machine().gpus) return said(cudaErrorInvalidDevice);
  current_device() = device;
  return said(context_error());
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= machine().gpus) return said(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = machine().bytes;
  properties->multiProcessorCount = 4;
  properties->major = 9;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= machine().gpus) return said(cudaErrorInvalidDevice);
  if (attribute != cudaDevAttrL2CacheSize) return said(cudaErrorInvalidValue);
  constexpr int cache_bytes = 1 << 16;
  *value = cache_bytes;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  const auto is_none = [](int gpu) { return gpu < 0 || gpu >= machine().gpus; };
  if (is_none(device) || is_none(other)) return said(cudaErrorInvalidDevice);
  *can = device != other;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  const int device = current_device();
  Engine::instance().wait_until(lock, [&] { return Engine::instance().is_idle(device); });
  return said(context_error());
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  *free = free_bytes(current_device());
  *total = machine().bytes;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  static thread_local std::string name;
  name = "cudaError" + std::to_string(static_cast<int>(error));
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : name.c_str();
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "an emulated GPU's error";
}

// --- Memory
// ---------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  *memory = bytes == 0 ? nullptr : take_memory(current_device(), bytes);
  return said(bytes > 0 && *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFree(void* memory) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  if (memory == nullptr) return cudaSuccess;
  const int device = current_device();
  Engine::instance().wait_until(lock, [&] { return Engine::instance().is_idle(device); });
  return said(give_back_memory(memory) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  if (flags != cudaHostAllocPortable && flags != cudaHostAllocDefault)
    return said(cudaErrorInvalidValue);
  *memory = take_pinned(bytes);
  return said(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* memory) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  const int device = current_device();
  Engine::instance().wait_until(lock, [&] { return Engine::instance().is_idle(device); });
  return said(memory == nullptr || give_back_pinned(memory) ? cudaSuccess : cudaErrorInvalidValue);
}

/// With memory of the host that is not pinned CUDA waits; who must not wait is told of it by
/// DSTUNE_EMULATED_STRICT.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool is_pinned = reaches(to, bytes) && reaches(from, bytes);
  const bool may_wait = std::getenv("DSTUNE_EMULATED_STRICT") == nullptr;
  if (kind != cudaMemcpyDefault || !(is_pinned || may_wait)) return said(cudaErrorInvalidValue);
  const cudaError_t error = ask_stream_to(stream, [=] { std::memmove(to, from, bytes); });
  if (error != cudaSuccess || is_pinned) return said(error);
  return finish(stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!reaches(to, bytes)) return said(cudaErrorInvalidValue);
  return said(ask_stream_to(stream, [=] { std::memset(to, value, bytes); }));
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
  if (const cudaError_t error = cudaDeviceSynchronize()) return error;
  const Opened opened;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

// --- Streams
// --------------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  if (flags != cudaStreamNonBlocking) return said(cudaErrorInvalidValue);
  *stream = Engine::instance().make_stream(current_device());
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto lock = Engine::instance().locked();
  CUstream_st* const found = stream == nullptr ? nullptr : find(stream);
  if (found == nullptr) return said(cudaErrorInvalidResourceHandle);
  Engine::instance().leave(found);
  return said(context_error());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  CUstream_st* const found = find(stream);
  if (found == nullptr) return said(cudaErrorInvalidResourceHandle);
  Engine::instance().wait_for_room(lock, *found);
  if (event->capture != nullptr) {
    if (event->capture->is_over) return said(cudaErrorInvalidValue);
    if (event->capture->is_invalid) return said(cudaErrorStreamCaptureInvalidated);
    if (found->capture != nullptr && found->capture != event->capture) {
      found->capture->is_invalid = event->capture->is_invalid = true;
      return said(cudaErrorStreamCaptureMerge);
    }
    found->capture = event->capture;
    found->last.insert(found->last.end(), event->nodes.begin(), event->nodes.end());
    return cudaSuccess;
  }
  if (found->capture != nullptr) {
    found->capture->is_invalid = true;
    return said(cudaErrorStreamCaptureIsolation);
  }
  Engine::instance().ask(*found, waiting_for(*event));
  return cudaSuccess;
}

// --- Events
// ---------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  *event = new CUevent_st;
  (*event)->device = current_device();
  (*event)->takes_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

/// Its object stays: something under way may still reach it.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto lock = Engine::instance().locked();
  event->device = -1;
  return said(context_error());
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  CUstream_st* const found = find(stream);
  if (found == nullptr || event->device != found->device)
    return said(cudaErrorInvalidResourceHandle);
  Engine::instance().wait_for_room(lock, *found);
  if (found->capture == nullptr) {
    if (flags == cudaEventRecordExternal) return said(cudaErrorIllegalState);
    event->capture = nullptr;
    Engine::instance().ask(*found, reaching(*event));
    return cudaSuccess;
  }
  if (found->capture->is_invalid) return said(cudaErrorStreamCaptureInvalidated);
  if (flags == cudaEventRecordExternal) {
    capture_node(*found, {.task = {}, .event = event, .after = {}});
  } else {
    event->capture = found->capture;
    event->nodes = found->last;
  }
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  if (event->device < 0) return said(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return said(cudaErrorCapturedEvent);
  return said(event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  auto lock = Engine::instance().locked();
  if (const cudaError_t error = usual_error()) return said(error);
  if (event->device < 0) return said(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return said(cudaErrorCapturedEvent);
  Engine::instance().wait_until(
      lock, [event, number = event->recorded] { return event->reached >= number; });
  return said(context_error());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t second) {
  const auto lock = Engine::instance().locked();
  if (const cudaError_t error = context_error()) return said(error);
  for (const cudaEvent_t event : {first, second}) {
    if (event->device < 0 || !event->takes_time || event->recorded == 0)
      return said(cudaErrorInvalidResourceHandle);
    if (event->reached < event->recorded) return said(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(second->when - first->when).count();
  return cudaSuccess;
}

// --- Kernels
// --------------------------------------------------------------------------------------

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*function*/) {
  const auto lock = Engine::instance().locked();
  *attributes = {};
  return said(context_error());
}

cudaError_t cudaFuncSetAttribute(const void* /*function*/, cudaFuncAttribute attribute,
                                 int /*value*/) {
  const auto lock = Engine::instance().locked();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return said(cudaErrorInvalidValue);
  return said(context_error());
}

}  // extern "C"
