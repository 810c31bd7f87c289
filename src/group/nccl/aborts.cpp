#include "aborts.hpp"

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

namespace dstune::nccl {

struct Aborts::State {
  std::function<void()> begin_thread;
  std::atomic<int> under_way = 0;

  void begin() const noexcept {
    if (!begin_thread) return;
    try {
      begin_thread();
    } catch (const std::exception&) {
      // A device that is lost: what is aborted is tried all the same.
    }
  }
};

Aborts::Aborts(std::function<void()> begin_thread) : state_(std::make_shared<State>()) {
  state_->begin_thread = std::move(begin_thread);
}

void Aborts::start(std::shared_ptr<Library> library, std::vector<Comm> comms,
                   std::shared_ptr<void> owner) noexcept {
  if (comms.empty()) return;
  ++state_->under_way;
  try {
    // The state is shared: a thread that never ends outlives this.
    std::thread([state = state_, library = std::move(library), comms = std::move(comms),
                 owner = std::move(owner)]() mutable {
      state->begin();
      library->group_start();
      for (const Comm comm : comms) library->abort(comm);
      library->group_end();
      owner.reset();
      library.reset();
      --state->under_way;
    }).detach();
  } catch (const std::exception&) {
    // No thread can be had: they count as aborts that never end.
  }
}

bool Aborts::are_done() const {
  return state_->under_way == 0;
}

void Aborts::wait(const Waiter& waiter) const {
  waiter.until([this] { return are_done(); }, "waiting for NCCL to abort");
}

}  // namespace dstune::nccl
