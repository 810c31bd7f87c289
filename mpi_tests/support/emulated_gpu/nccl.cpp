// nccl.h, as libnccl.so.2: communicators that are non-blocking, whose collectives a thread of the
// library puts into streams, and whose data goes from process to process by messages. A call on a
// communicator that is in progress, or that has failed, is refused and says so.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#include "calls.hpp"
#include "group/average.hpp"
#include "memory.hpp"
#include "nccl_comms.hpp"

using namespace dstune::emulated;

namespace {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 4;
  }
}

dstune::DType type_of(ncclDataType_t type) {
  if (type == ncclFloat16) return dstune::DType::f16;
  return type == ncclBfloat16 ? dstune::DType::bf16 : dstune::DType::f32;
}

/// Whether the variable names this rank, or "all".
bool refuses_capture(const ncclComm& comm) {
  const char* const who = std::getenv("DSTUNE_EMULATED_NCCL_REFUSES_CAPTURE");
  return who != nullptr && (std::string_view(who) == "all" || std::atoi(who) == comm.rank);
}

/// The variable stands above what a communicator is asked to be, as in NCCL.
bool is_blocking(const ncclConfig_t* config) {
  const char* const all = std::getenv("NCCL_COMM_BLOCKING");
  if (all != nullptr) return std::string_view(all) != "0";
  return config == nullptr || config->blocking != 0;
}

bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

ncclResult_t enqueue(const Comm& comm, cudaStream_t stream, Task task) {
  // A version, or a network, that can not be captured.
  if (refuses_capture(*comm) && is_captured(stream))
    return begin(comm, [] { return cudaErrorStreamCaptureUnsupported; });
  const auto use = std::make_shared<char>();
  std::erase_if(comm->uses, [](const auto& other) { return other.expired(); });
  comm->uses.push_back(use);
  return begin(comm, [comm, stream, task = [use, task = std::move(task)] { return task(); }] {
    return ask_stream_in_order(stream, *comm->order, task);
  });
}

using Use = std::function<void(const Exchange& all)>;

struct Bytes {
  const void* begin = nullptr;
  std::size_t count = 0;

  [[nodiscard]] const std::byte* first() const { return static_cast<const std::byte*>(begin); }
  [[nodiscard]] const std::byte* end() const { return first() + count; }
};

/// Empty, or what NCCL's manual does not allow of what is read and what is written: only that both
/// begin at the same place in the part that is this rank's.
std::string memory_violation(const Bytes& read, const Bytes& written, const std::byte* own_place) {
  if (!reaches(read.begin, read.count)) return "reads beyond what was allocated";
  if (written.count == 0) return "";
  if (!reaches(written.begin, written.count)) return "writes beyond what was allocated";
  const bool overlaps = read.first() < written.end() && written.first() < read.end();
  const bool is_in_place =
      own_place == (read.count < written.count ? read.first() : written.first());
  return overlaps && !is_in_place ? "reads where it writes and is not in place" : "";
}

ncclResult_t collective(ncclComm_t handle, const std::string& what, const Bytes& read,
                        const Bytes& written, const std::byte* own_place, cudaStream_t stream,
                        Use use) {
  const auto lock = lock_nccl();
  const Comm comm = find(handle);
  std::string why_not = violation(comm, what.c_str());
  if (why_not.empty()) {
    why_not = memory_violation(read, written, own_place);
    if (!why_not.empty()) why_not = what + " " + why_not;
  }
  if (!why_not.empty()) return refuse(why_not);
  const auto [data, bytes] = read;
  return enqueue(comm, stream, [=]() -> Turn {
    auto exchange = std::make_shared<Exchange>(comm, what);
    return [=] {
      if (!comm->is_aborted && !exchange->has_all(data, bytes)) return false;
      if (!comm->is_aborted) {
        use(*exchange);
        exchange->finish();
      }
      return true;
    };
  });
}

void reduce_into(void* out, const Exchange& all, const ncclComm& comm, std::size_t first_byte,
                 std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
  std::vector<const void*> parts;
  for (int rank = 0; rank < comm.size; ++rank) parts.push_back(all.of(rank).data() + first_byte);
  dstune::sum_and_divide(out, parts, op == ncclAvg ? comm.size : 1,
                         static_cast<std::int64_t>(count), type_of(type), dstune::Write::cached);
}

std::string named(const char* what, std::size_t count, ncclDataType_t type) {
  return std::string(what) + "-" + std::to_string(count) + "-" + std::to_string(type);
}

struct Group {
  int depth = 0;
  Comm comm;
  cudaStream_t stream = nullptr;
  std::vector<Part> parts;
};
thread_local Group group;

ncclResult_t add(const char* call, ncclComm_t handle, cudaStream_t stream, const Part& part) {
  const auto lock = lock_nccl();
  const Comm comm = find(handle);
  if (const std::string why_not = violation(comm, call); !why_not.empty()) return refuse(why_not);
  if (group.depth == 0) return refuse(std::string(call) + " outside of a group of calls");
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream))
    return refuse("a group of calls on two communicators or streams");
  const Bytes mine{part.sent == nullptr ? part.received : part.sent, part.bytes};
  for (const Part& other : group.parts) {
    const Bytes theirs{other.sent == nullptr ? other.received : other.sent, other.bytes};
    const bool is_read_only = part.sent != nullptr && other.sent != nullptr;
    if (!is_read_only && mine.first() < theirs.end() && theirs.first() < mine.end())
      return refuse(std::string(call) + " where another of its group reads or writes");
  }
  if (!reaches(mine.begin, mine.count))
    return refuse(std::string(call) + " goes beyond what was allocated");
  group.comm = comm;
  group.stream = stream;
  group.parts.push_back(part);
  return ncclSuccess;
}

/// Once all ranks have said where they go, unless it is aborted.
void finish_split(const Comm& parent, const std::string& name, int color, int key, bool shares,
                  ncclComm_t* made) {
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int rank = 0; rank < parent->size; ++rank) {
    std::optional<Message> message;
    while (!(message = read_post(parent->name(name, rank)))) {
      if (parent->is_aborted) {
        const auto lock = lock_nccl();
        *made = make_failed(*parent);
        return;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    int theirs[2];
    std::memcpy(theirs, message->data(), sizeof theirs);
    if (theirs[0] == color) members.emplace_back(theirs[1], rank);
  }
  std::ranges::sort(members);
  const auto own = std::ranges::find(members, std::pair(key, parent->rank));
  const auto lock = lock_nccl();
  const Comm comm = make(parent->id + "." + name + "." + std::to_string(color),
                         static_cast<int>(own - members.begin()), static_cast<int>(members.size()),
                         parent->device);
  if (shares) comm->order = parent->order;
  *made = comm.get();
}

}  // namespace

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
  return last_nccl_error().c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "%08x%08x", random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (is_blocking(config)) return refuse("a blocking communicator");
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  const auto lock = lock_nccl();
  *made = make(id.internal, rank, size, device).get();
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  const auto lock = lock_nccl();
  const Comm parent = find(handle);
  if (const std::string why_not = violation(parent, "ncclCommSplit"); !why_not.empty())
    return refuse(why_not);
  if (!is_reached(*parent->order)) return refuse("ncclCommSplit with collectives under way");
  const bool shares = config != nullptr && config->splitShare == 1;
  const std::string name = "split" + std::to_string(parent->splits++);
  const int mine[2] = {color, key};
  post(parent->name(name, parent->rank), copy_of(mine, sizeof mine));
  // The handle is written when the parent is no longer in progress, of which the result says
  // nothing (NCCL's source, init.cc).
  *made = nullptr;
  begin(parent, [=] {
    finish_split(parent, name, color, key, shares, made);
    return cudaSuccess;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  const auto lock = lock_nccl();
  const Comm comm = find(handle);
  if (comm == nullptr) return refuse("ncclCommGetAsyncError on a communicator that is gone");
  *state = look(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const auto lock = lock_nccl();
  const Comm comm = find(handle);
  if (const std::string why_not = violation(comm, "ncclCommFinalize"); !why_not.empty())
    return refuse(why_not);
  comm->state = ncclComm::State::finalizing;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return forget(comm, false);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return forget(comm, true);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse("ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0 || group.comm == nullptr) return ncclSuccess;
  const Group ended = std::exchange(group, Group{});
  const auto lock = lock_nccl();
  return enqueue(ended.comm, ended.stream, [ended] { return trade(ended.comm, ended.parts); });
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const Bytes read{in, count * size_of(type)};
  return collective(comm, named("allreduce", count, type), read, {out, read.count}, read.first(),
                    stream,
                    [=](const Exchange& all) { reduce_into(out, all, *comm, 0, count, type, op); });
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const Bytes read{in, count * size_of(type)};
  const std::size_t written = comm != nullptr && comm->rank == root ? read.count : 0;
  return collective(comm, named("reduce", count, type), read, {out, written}, read.first(), stream,
                    [=](const Exchange& all) {
                      if (comm->rank == root) reduce_into(out, all, *comm, 0, count, type, op);
                    });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const std::size_t own_byte = bytes * static_cast<std::size_t>(comm->rank);
  const Bytes read{in, bytes * static_cast<std::size_t>(comm->size)};
  return collective(comm, named("reducescatter", count, type), read, {out, bytes},
                    read.first() + own_byte, stream, [=](const Exchange& all) {
                      reduce_into(out, all, *comm, own_byte, count, type, op);
                    });
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  auto* const begin = static_cast<std::byte*>(out);
  const Bytes written{out, bytes * static_cast<std::size_t>(comm->size)};
  return collective(comm, named("allgather", count, type), {in, bytes}, written,
                    begin + bytes * static_cast<std::size_t>(comm->rank), stream,
                    [=](const Exchange& all) {
                      for (int rank = 0; rank < comm->size; ++rank) {
                        const auto number = static_cast<std::size_t>(rank);
                        std::memcpy(begin + number * bytes, all.of(rank).data(), bytes);
                      }
                    });
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return add("ncclSend", comm, stream, {peer, data, nullptr, count * size_of(type)});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add("ncclRecv", comm, stream, {peer, nullptr, data, count * size_of(type)});
}

}  // extern "C"
