#pragma once
/// NCCL as this program uses it, without its headers: the process's library, loaded when asked for,
/// or a stand-in. Comments on communicators, streams and groups of calls state NCCL's contract. All
/// functions: Local, except where NCCL waits for peers.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dstune/base/operands.hpp"
#include "dstune/group/process_group.hpp"

struct ncclComm;  // as NCCL's header declares it

namespace dstune::nccl {

using Comm = ncclComm*;  ///< ncclComm_t

/// ncclUniqueId
struct UniqueId {
  std::array<char, 128> bytes{};
};

/// ncclResult_t
enum class Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

using dstune::Reduction;

/// The buffers that a call sends from and receives into.
struct Buffers {
  const void* in;
  void* out;
  std::int64_t count;  ///< elements, as NCCL counts them for that call
  DType type;
};

/// Communicators are non-blocking: a call may say in_progress, and no other call is allowed on the
/// communicator until async_error() says another thing. Only abort() is allowed on a communicator
/// with an error.
class Library {
 public:
  Library() = default;
  virtual ~Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The version as NCCL codes it: 22809 is 2.28.9.
  [[nodiscard]] virtual int version() const = 0;
  /// Returns NCCL's words for the error.
  [[nodiscard]] virtual std::string error_text(Result result) = 0;

  virtual Result get_unique_id(UniqueId& id) = 0;
  /// `made` is set at the call. `shares`: whether those split from it share its resources, which
  /// takes less memory, and ends them together: an abort of one stops them all.
  virtual Result init(Comm& made, int size, const UniqueId& id, int rank, bool shares) = 0;
  /// All ranks of the parent call it. The parent is in progress then, even if this says success.
  /// `made` is set when the parent no longer is, or is aborted, so it must live on until then, or
  /// for ever.
  virtual Result split(Comm parent, int color, int key, Comm& made, bool shares) = 0;
  /// How the communicator is: success, in_progress or an error.
  virtual Result async_error(Comm comm, Result& state) = 0;
  /// Finishes enqueued work first.
  virtual Result finalize(Comm comm) = 0;
  /// Blocks until all ranks of the node destroy or abort theirs, and graphs with its calls are
  /// gone.
  virtual Result destroy(Comm comm) = 0;
  /// Ends what is under way and frees the communicator. May block for as long.
  virtual Result abort(Comm comm) = 0;

  /// Calls between them are one; send and receive are allowed there only.
  virtual Result group_start() = 0;
  virtual Result group_end() = 0;
  virtual Result all_reduce(const Buffers& buffers, Reduction op, Comm comm, void* stream) = 0;
  /// `out` may be null but on the root.
  virtual Result reduce(const Buffers& buffers, Reduction op, int root, Comm comm,
                        void* stream) = 0;
  virtual Result reduce_scatter(const Buffers& buffers, Reduction op, Comm comm, void* stream) = 0;
  virtual Result all_gather(const Buffers& buffers, Comm comm, void* stream) = 0;
  virtual Result send(const void* data, std::int64_t count, DType type, int peer, Comm comm,
                      void* stream) = 0;
  virtual Result receive(void* data, std::int64_t count, DType type, int peer, Comm comm,
                         void* stream) = 0;
};

/// "2.28.9"
[[nodiscard]] std::string version_text(int version);

/// The first version in which a thread can abort what another one began, and wait for it: 2.19.1.
/// Version 2.18 has all functions, too, but its group.cc looks for what the aborting thread began
/// itself.
inline constexpr int min_version = 21901;

/// Tells whether NCCL of this version takes two ranks on one GPU here. It does from 2.30 on, if the
/// user sets NCCL_MULTI_RANK_GPU_ENABLE=1 (its manual, "Environment variables"; experimental).
[[nodiscard]] bool serves_ranks_of_one_gpu(int version);

/// A library, and in any case a line about it: "2.28.9 (/usr/lib/libnccl.so.2)", or why there is
/// none.
struct FoundLibrary {
  std::shared_ptr<Library> library;
  std::string description;
};

/// The name by which the dynamic linker knows it.
inline constexpr const char* library_name = "libnccl.so.2";

/// The other user of NCCL in the process. NCCL reads its variables once, for all that use it.
enum class SharedWith {
  nobody,
  pytorch  ///< whose communicators shall be those of the user's own launch
};

/// Before communicators are made and other threads start: takes NCCL_COMM_BLOCKING out of the
/// environment, which overrides what each communicator is asked to be. If nobody shares NCCL, two
/// variables are set that the user has not set. NCCL_RUNTIME_CONNECT lets NCCL connect with a
/// communicator and not with its first collective, so that the connections' memory and time are
/// seen. NCCL_GRAPH_REGISTER lets it hand no graph's buffers to peers, who would keep them beyond
/// its end. An arena, though, goes where the next experiment needs a larger one. Collectives
/// outside of graphs, DeepSpeed's among them, do without it, too.
void set_variables(SharedWith shared_with);

/// Loads NCCL, once a process: as the dynamic linker finds it, else from the first of the folders
/// that has it, else beside the header that this was built with.
FoundLibrary find_library(const std::string& file = library_name,
                          const std::vector<std::string>& folders = {});

}  // namespace dstune::nccl
