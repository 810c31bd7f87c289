#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {

/// Ends communicators on threads of their own, which never call MPI: ncclCommAbort itself may hang,
/// and so may ncclCommDestroy, which waits for the peers of this node to end theirs. Local.
class Teardown {
 public:
  using Comms = std::vector<Comm>;

  /// `begin_thread`: what each of its threads does first; may be empty.
  explicit Teardown(std::function<void()> begin_thread = nullptr);
  /// Whose threads begin alike, and are waited for apart.
  [[nodiscard]] Teardown another() const;
  /// On one thread, all of them in one go. Each waits for what was asked of it, so those that share
  /// no resources, of which one may hold up another, are aborted by a call each. `more`: what was
  /// made until then, and has to be aborted, too. `owner` lives until it is done.
  void abort(std::shared_ptr<Library> library, Comms comms, std::function<Comms()> more,
             std::shared_ptr<void> owner) noexcept;
  /// On one thread, one after the other: what was finalized.
  void destroy(std::shared_ptr<Library> library, Comms comms, std::shared_ptr<void> owner) noexcept;
  [[nodiscard]] bool are_done() const;
  /// Those that are under way count no more.
  void forget();
  /// Throws CollectiveError.
  void wait(const Waiter& waiter) const;

 private:
  struct State;
  void start(std::function<void()> work) noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace dstune::nccl
