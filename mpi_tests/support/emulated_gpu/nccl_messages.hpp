#pragma once
/// Communicators of the emulated NCCL, and how the data of their calls goes from process to
/// process.

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nccl.h>

#include "objects.hpp"
#include "post.hpp"

/// ncclComm_t
struct ncclComm {
  enum class State { joining, ready, enqueuing, finalizing, failed };

  std::string id;
  int rank = 0;
  int size = 1;
  int device = 0;
  State state = State::joining;
  std::thread enqueuing;
  std::atomic<bool> is_enqueued = false;
  bool has_connected = false;         ///< to all ranks, which wait for one another when it goes
  cudaError_t refusal = cudaSuccess;  ///< of what was enqueued last
  int splits = 0;
  /// What it was asked for lives as long as it is not done, or in a graph.
  std::vector<std::weak_ptr<void>> uses;
  /// Collectives of communicators that share resources come one after the other.
  std::shared_ptr<CUevent_st> order = std::make_shared<CUevent_st>();

  // What the GPU's thread looks at.
  std::atomic<bool> is_aborted = false;
  int done = 0;
  std::string last_post;              ///< that others may still have to read
  std::map<int, int> sent, received;  ///< by peer

  [[nodiscard]] std::string name(const std::string& what, int of_rank) const {
    return "nccl." + id + "." + what + "." + std::to_string(of_rank);
  }
};

namespace dstune::emulated {

using Comm = std::shared_ptr<ncclComm>;

Message copy_of(const void* data, std::size_t bytes);

/// Everybody's data of a collective, once it is there. On the GPU's thread.
class Exchange {
 public:
  /// The communicator's next one, `what`, of so many bytes from each rank.
  Exchange(Comm comm, const std::string& what);

  bool has_all(const void* data, std::size_t bytes);
  void finish();
  [[nodiscard]] const Message& of(int rank) const { return *all_[static_cast<std::size_t>(rank)]; }

 private:
  Comm comm_;
  std::string name_;
  std::vector<std::optional<Message>> all_;
  bool is_posted_ = false;
};

/// A send or receive of a group of calls.
struct Part {
  int peer;
  const void* sent;
  void* received;
  std::size_t bytes;
};

/// All of them as one. On the GPU's thread.
Turn trade(const Comm& comm, const std::vector<Part>& parts);

}  // namespace dstune::emulated
