#pragma once
/// Waiting that always ends: on completion, at a deadline, or when somebody aborts.

#include <chrono>
#include <functional>
#include <utility>

namespace dstune {

/// How a wait behaves while it polls. Cheap to copy. Local.
class Waiter {
 public:
  using Clock = std::chrono::steady_clock;

  /// `aborted` is asked about once a millisecond while waiting; it may poll a mailbox.
  /// `share_core`: more ranks than cores, so give the core away at once instead of spinning.
  Waiter(Clock::time_point deadline, std::function<bool()> aborted, bool share_core)
      : deadline_(deadline), aborted_(std::move(aborted)), share_core_(share_core) {}
  /// Waits for ever, for tests and start-up.
  Waiter() : Waiter(Clock::time_point::max(), nullptr, true) {}

  [[nodiscard]] Clock::time_point deadline() const { return deadline_; }

  /// The same wait with another end.
  [[nodiscard]] Waiter with_deadline(Clock::time_point deadline) const {
    return {deadline, aborted_, share_core_};
  }

  /// The same wait, and whatever `check` throws ends it, too; it is asked as often as `aborted`.
  [[nodiscard]] Waiter with_check(std::function<void()> check) const {
    return {deadline_,
            [check = std::move(check), aborted = aborted_] {
              check();
              return aborted && aborted();
            },
            share_core_};
  }

  /// Throws what a wait would throw now, without waiting.
  void check(const char* what) const {
    Progress progress;
    look(progress, Clock::now(), what);
  }

  /// Polls `done` until it returns true. Throws CollectiveError naming `what`.
  template <class Done>
  void until(Done&& done, const char* what) const {
    Progress progress;
    while (!done()) pause(progress, what);
  }

 private:
  /// How far one wait has come.
  struct Progress {
    int round = 0;
    Clock::time_point began{};
    Clock::time_point asked{};  ///< when `aborted` was asked last
  };

  /// One pause: spins, yields or naps, and now and then looks at the clock and `aborted`. Throws.
  void pause(Progress& progress, const char* what) const;
  void look(Progress& progress, Clock::time_point now, const char* what) const;

  Clock::time_point deadline_;
  std::function<bool()> aborted_;
  bool share_core_;
};

}  // namespace dstune
