#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {

/// Aborts on threads of their own, which never call MPI: ncclCommAbort itself may hang. Local.
class Aborts {
 public:
  /// `begin_thread`: what each of its threads does first; may be empty.
  explicit Aborts(std::function<void()> begin_thread = nullptr);
  /// On one thread, all of them in one go. Each waits for what was asked of it, so those that share
  /// no resources, of which one may hold up another, are aborted by a call each. `owner` lives
  /// until it is done.
  void start(std::shared_ptr<Library> library, std::vector<Comm> comms,
             std::shared_ptr<void> owner) noexcept;
  [[nodiscard]] bool are_done() const;
  /// Throws CollectiveError.
  void wait(const Waiter& waiter) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dstune::nccl
