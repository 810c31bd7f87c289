#pragma once

#include <memory>
#include <vector>

#include "dstune/base/wait.hpp"
#include "dstune/group/nccl_library.hpp"

namespace dstune::nccl {

/// Aborts on threads of their own, which never call MPI: ncclCommAbort itself may hang. Local.
class Aborts {
 public:
  Aborts();
  /// All of them in one go, since one may wait for what another holds up. `owner` lives until it
  /// is done.
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
