#include "teardown.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace dstune::nccl {

struct Teardown::State {
  using Count = std::shared_ptr<std::atomic<int>>;

  std::function<void()> begin_thread;
  mutable std::mutex mutex;
  Count under_way = std::make_shared<std::atomic<int>>(0);

  [[nodiscard]] Count count() const {
    const std::lock_guard lock(mutex);
    return under_way;
  }
  void begin() const noexcept {
    if (!begin_thread) return;
    try {
      begin_thread();
    } catch (const std::exception&) {
      // A device that is lost: what is to end is tried all the same.
    }
  }
};

namespace {

void abort_all(Library& library, const Teardown::Comms& comms) {
  if (comms.empty()) return;
  library.group_start();
  for (const Comm comm : comms) library.abort(comm);
  library.group_end();
}

}  // namespace

Teardown::Teardown(std::function<void()> begin_thread) : state_(std::make_shared<State>()) {
  state_->begin_thread = std::move(begin_thread);
}

Teardown Teardown::another() const {
  return Teardown(state_->begin_thread);
}

void Teardown::start(std::function<void()> work) noexcept {
  const State::Count under_way = state_->count();
  ++*under_way;
  try {
    // The state is shared: a thread that never ends outlives this.
    std::thread([state = state_, under_way, work = std::move(work)]() mutable {
      state->begin();
      work();
      work = nullptr;
      --*under_way;
    }).detach();
  } catch (const std::exception&) {
    // No thread can be had: they count as ends that never come.
  }
}

void Teardown::abort(std::shared_ptr<Library> library, Comms comms, std::function<Comms()> more,
                     std::shared_ptr<void> owner) noexcept {
  if (comms.empty()) return;
  start([library = std::move(library), comms = std::move(comms), more = std::move(more),
         owner = std::move(owner)] {
    abort_all(*library, comms);
    if (more) abort_all(*library, more());
  });
}

void Teardown::destroy(std::shared_ptr<Library> library, Comms comms,
                       std::shared_ptr<void> owner) noexcept {
  start([library = std::move(library), comms = std::move(comms), owner = std::move(owner)] {
    for (const Comm comm : comms) library->destroy(comm);
  });
}

bool Teardown::are_done() const {
  return *state_->count() == 0;
}

void Teardown::forget() {
  const std::lock_guard lock(state_->mutex);
  state_->under_way = std::make_shared<std::atomic<int>>(0);
}

void Teardown::wait(const Waiter& waiter) const {
  waiter.until([this] { return are_done(); }, "waiting for NCCL to end communicators");
}

}  // namespace dstune::nccl
