// nccl.h, as libnccl.so.2: the stand-in on emulated GPUs. A thread of the library puts collectives
// into streams.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "calls.hpp"
#include "fake_nccl.hpp"
#include "machine.hpp"
#include "memory.hpp"

namespace dstune::emulated {
namespace {

using test::End;
using test::Ended;

/// A communicator's part on its GPU.
constexpr std::size_t comm_bytes = std::size_t{8} << 20;

Ended ended(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return {nccl::Result::unhandled_cuda_error, "Cuda failure " + std::to_string(error)};
}

/// Versions and networks exist that can not be captured. The variable names a rank, or "all".
bool refuses(const ncclComm& comm, cudaStream_t stream) {
  const char* const who = std::getenv("DSTUNE_EMULATED_NCCL_REFUSES_CAPTURE");
  if (who == nullptr || (std::string_view(who) != "all" && std::atoi(who) != comm.rank))
    return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

class EmulatedStreams : public test::NcclStreams {
 public:
  End add(nccl::Comm comm, void* handle, Task task) override {
    auto* const stream = static_cast<cudaStream_t>(handle);
    if (refuses(*comm, stream)) return [] { return ended(cudaErrorStreamCaptureUnsupported); };
    const auto ask = [=, task = std::move(task)] {
      current_device() = comm->device;
      return ask_stream_in_order(stream, order_of(*comm), task);
    };
    const auto asked =
        std::make_shared<std::future<cudaError_t>>(std::async(std::launch::async, ask));
    return [asked]() -> std::optional<Ended> {
      if (asked->wait_for(std::chrono::seconds(0)) != std::future_status::ready)
        return std::nullopt;
      return ended(asked->get());
    };
  }
  [[nodiscard]] bool is_idle(const ncclComm& comm) const override {
    return is_reached(order_of(comm));
  }
  [[nodiscard]] bool go_on() const override { return !is_fault(); }
  [[nodiscard]] int device() const override { return current_device(); }
  void set_device(int device) override { cudaSetDevice(device); }
  [[nodiscard]] std::shared_ptr<void> make_order(int device) override {
    auto order = std::make_shared<CUevent_st>();
    order->device = device;
    return order;
  }
  std::string take_memory(int device) override {
    if (take_bytes(device, comm_bytes)) return "";
    return "Failed to CUDA calloc " + std::to_string(comm_bytes) + " bytes";
  }
  void give_back_memory(int device) override { give_back_bytes(device, comm_bytes); }
  [[nodiscard]] bool reaches(const void* memory, std::size_t bytes) const override {
    return emulated::reaches(memory, bytes);
  }
  [[nodiscard]] bool lives(int process) const override { return emulated::lives(process); }

 private:
  static CUevent_st& order_of(const ncclComm& comm) {
    return *static_cast<CUevent_st*>(comm.order.get());
  }
};

test::FakeNccl& library() {
  static auto& one = *new test::FakeNccl(std::make_unique<EmulatedStreams>(), machine().folder);
  return one;
}

ncclResult_t native(nccl::Result result) {
  return static_cast<ncclResult_t>(result);
}

DType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return DType::i8;
    case ncclFloat16:
      return DType::f16;
    case ncclBfloat16:
      return DType::bf16;
    case ncclInt32:
      return DType::i32;
    default:
      return DType::f32;
  }
}

nccl::Reduction reduction_of(ncclRedOp_t op) {
  return op == ncclAvg ? nccl::Reduction::average : nccl::Reduction::sum;
}

nccl::Buffers buffers_of(const void* in, void* out, std::size_t count, ncclDataType_t type) {
  return {in, out, static_cast<std::int64_t>(count), type_of(type)};
}

/// The variable stands above what a communicator is asked to be, as in NCCL.
bool is_blocking(const ncclConfig_t* config) {
  const char* const all = std::getenv("NCCL_COMM_BLOCKING");
  if (all != nullptr) return std::string_view(all) != "0";
  return config == nullptr || config->blocking != 0;
}

bool shares(const ncclConfig_t* config) {
  return config != nullptr && config->splitShare == 1;
}

}  // namespace
}  // namespace dstune::emulated

using namespace dstune::emulated;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const other = std::getenv("DSTUNE_EMULATED_NCCL_VERSION");
  *version = other == nullptr ? NCCL_VERSION_CODE : std::atoi(other);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclUnhandledCudaError ? "unhandled cuda error" : "an emulated NCCL's error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  static thread_local std::string words;
  words = library().words();
  return words.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  dstune::nccl::UniqueId made;
  const ncclResult_t result = native(library().get_unique_id(made));
  std::copy(made.bytes.begin(), made.bytes.end(), id->internal);
  return result;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (is_blocking(config)) {
    std::fputs("fake NCCL: a blocking communicator\n", stderr);
    return ncclInvalidUsage;
  }
  return native(library().init(*made, size, {std::to_array(id.internal)}, rank, shares(config)));
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  return native(library().split(comm, color, key, *made, shares(config)));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  auto found = dstune::nccl::Result::success;
  const ncclResult_t result = native(library().async_error(comm, found));
  *state = native(found);
  return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return native(library().finalize(comm));
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return native(library().destroy(comm));
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return native(library().abort(comm));
}

ncclResult_t ncclGroupStart() {
  return native(library().group_start());
}

ncclResult_t ncclGroupEnd() {
  return native(library().group_end());
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return native(
      library().all_reduce(buffers_of(in, out, count, type), reduction_of(op), comm, stream));
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return native(
      library().reduce(buffers_of(in, out, count, type), reduction_of(op), root, comm, stream));
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return native(
      library().reduce_scatter(buffers_of(in, out, count, type), reduction_of(op), comm, stream));
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return native(library().all_gather(buffers_of(in, out, count, type), comm, stream));
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return native(
      library().send(data, static_cast<std::int64_t>(count), type_of(type), peer, comm, stream));
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return native(
      library().receive(data, static_cast<std::int64_t>(count), type_of(type), peer, comm, stream));
}

}  // extern "C"
