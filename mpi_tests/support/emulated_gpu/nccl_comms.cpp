#include "nccl_comms.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>
#include <unistd.h>

#include "calls.hpp"
#include "machine.hpp"

namespace dstune::emulated {
namespace {

/// Of a communicator on its GPU.
constexpr std::size_t comm_bytes = std::size_t{8} << 20;

struct Library {
  std::mutex mutex;
  std::map<ncclComm_t, Comm> comms;
};

Library& library() {
  static auto& one = *new Library;
  return one;
}

bool have_all_joined(const ncclComm& comm) {
  for (int rank = 0; rank < comm.size; ++rank)
    if (!read_post(comm.name("join", rank))) return false;
  return true;
}

void end_in(ncclComm& comm, bool is_good, const std::string& error) {
  comm.state = is_good ? ncclComm::State::ready : ncclComm::State::failed;
  if (!is_good) last_nccl_error() = error;
}

/// By what was asked of it, or by graphs.
bool is_used(const ncclComm& comm) {
  if (is_fault()) return false;
  return std::ranges::any_of(comm.uses, [](const auto& use) { return !use.expired(); });
}

/// Whether a rank that has joined has not ended it yet.
bool is_connected(const ncclComm& comm, int rank) {
  const auto joined = read_post(comm.name("join", rank));
  if (!joined || read_post(comm.name("closed", rank))) return false;
  pid_t process = 0;
  std::memcpy(&process, joined->data(), sizeof process);
  return lives(process);
}

void wait_while(const std::function<bool()>& holds) {
  while (holds()) std::this_thread::sleep_for(std::chrono::microseconds(500));
}

}  // namespace

std::string& last_nccl_error() {
  static thread_local std::string error;
  return error;
}

ncclResult_t refuse(const std::string& why) {
  last_nccl_error() = why;
  std::fprintf(stderr, "emulated NCCL: %s\n", why.c_str());
  return ncclInvalidUsage;
}

std::unique_lock<std::mutex> lock_nccl() {
  return std::unique_lock(library().mutex);
}

Comm find(ncclComm_t comm) {
  const auto found = library().comms.find(comm);
  return found == library().comms.end() ? nullptr : found->second;
}

std::string violation(const Comm& comm, const char* call) {
  if (comm == nullptr) return std::string(call) + " on a communicator that is gone";
  if (comm->state == ncclComm::State::ready) return "";
  return std::string(call) + " on a communicator that is in progress or has failed";
}

Comm make(std::string id, int rank, int size, int device) {
  auto comm = std::make_shared<ncclComm>();
  comm->id = std::move(id);
  comm->rank = rank;
  comm->size = size;
  comm->device = device;
  comm->order->device = device;
  library().comms[comm.get()] = comm;
  const pid_t process = getpid();
  post(comm->name("join", rank), copy_of(&process, sizeof process));
  return comm;
}

ncclComm_t make_failed(const ncclComm& parent) {
  auto comm = std::make_shared<ncclComm>();
  comm->device = parent.device;
  comm->state = ncclComm::State::failed;
  library().comms[comm.get()] = comm;
  return comm.get();
}

ncclResult_t begin(const Comm& comm, std::function<cudaError_t()> enqueue) {
  comm->state = ncclComm::State::enqueuing;
  comm->is_enqueued = false;
  comm->enqueuing = std::thread([comm, enqueue = std::move(enqueue)] {
    current_device() = comm->device;
    comm->refusal = enqueue();
    comm->is_enqueued = true;
  });
  return ncclInProgress;
}

ncclResult_t look(ncclComm& comm) {
  if (comm.state == ncclComm::State::joining && have_all_joined(comm)) {
    comm.has_connected = take_bytes(comm.device, comm_bytes);
    end_in(comm, comm.has_connected,
           "Failed to CUDA calloc " + std::to_string(comm_bytes) + " bytes");
  } else if (comm.state == ncclComm::State::enqueuing && comm.is_enqueued) {
    comm.enqueuing.join();
    end_in(comm, comm.refusal == cudaSuccess, "Cuda failure " + std::to_string(comm.refusal));
  } else if (comm.state == ncclComm::State::finalizing && is_reached(*comm.order) &&
             !is_used(comm)) {
    comm.state = ncclComm::State::ready;
  }
  if (comm.state == ncclComm::State::failed) return ncclUnhandledCudaError;
  return comm.state == ncclComm::State::ready ? ncclSuccess : ncclInProgress;
}

ncclResult_t forget(ncclComm_t handle, bool aborts) {
  Comm comm;
  {
    const auto lock = lock_nccl();
    comm = find(handle);
    if (comm == nullptr) return refuse("a communicator is destroyed twice");
    if (!aborts && comm->state != ncclComm::State::ready)
      return refuse("ncclCommDestroy on a communicator that is in progress");
    library().comms.erase(handle);
  }
  int device_of_caller = 0;
  cudaGetDevice(&device_of_caller);
  cudaSetDevice(comm->device);
  comm->is_aborted = aborts;
  if (comm->enqueuing.joinable()) comm->enqueuing.join();
  // A call may have failed since.
  if (comm->has_connected) {
    wait_while([&] { return is_used(*comm); });
    post(comm->name("closed", comm->rank), {});
    for (int rank = 0; rank < comm->size; ++rank)
      wait_while([&] { return is_connected(*comm, rank); });
    give_back_bytes(comm->device, comm_bytes);
  }
  remove_post(comm->last_post);
  cudaSetDevice(device_of_caller);
  return ncclSuccess;
}

}  // namespace dstune::emulated
