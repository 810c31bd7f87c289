#pragma once
/// Points in time, and how the threads of a rank wait: idle between messages, and beside another
/// thread that may be stuck.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <sched.h>

#include "dstune/base/clock.hpp"
#include "dstune/group/group_table.hpp"

namespace dstune {

/// Limits are of the steady clock, records of the other.
struct Moment {
  SteadyClock::time_point steady;
  std::chrono::system_clock::time_point wall;

  static Moment now() { return {SteadyClock::now(), std::chrono::system_clock::now()}; }
};

/// Moment::now, unless a test has other clocks.
using JobClock = std::function<Moment()>;

/// How controller and workers wait for messages: attentive just after one, then asleep for a part
/// of the wait so far, so that they take nothing from ranks that measure (a poll every 20 µs costs
/// a neighbour 2–3 %), and dozens of ranks that share a core still leave it to whoever has work.
/// Local.
class IdleBackoff {
 public:
  void reset() { rounds_ = 0; }
  void pause() {
    using namespace std::chrono_literals;
    if (rounds_++ < yields) {
      sched_yield();
      return;
    }
    const auto now = SteadyClock::now();
    if (rounds_ == yields + 1) began_ = now;
    const auto nap = (now - began_) / naps_per_wait;
    std::this_thread::sleep_for(std::clamp<SteadyClock::duration>(nap, 50us, 5ms));
  }

 private:
  static constexpr int yields = 20;
  static constexpr int naps_per_wait = 8;
  int rounds_ = 0;
  SteadyClock::time_point began_{};
};

/// Does something again and again on a thread of its own, until it is destroyed: what a second
/// thread of a rank does while the first may be stuck inside CUDA, behind a collective whose peer
/// is gone, or in a workload that never returns.
class PeriodicTask {
 public:
  PeriodicTask(std::chrono::milliseconds interval, std::function<void()> work)
      : thread_([this, interval, work = std::move(work)](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, stop, interval, [] { return false; }) &&
                 !stop.stop_requested()) {
            work();
          }
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

/// Ends the collectives of an attempt on devices once it is aborted or past its deadline. For a
/// rank that polls this is the second end. Local.
inline void interrupt_where_over(GroupTable& groups, std::uint64_t attempt, bool is_aborted,
                                 Waiter::Clock::time_point deadline) {
  if (is_aborted) {
    groups.interrupt(attempt, CollectiveError::Cause::aborted);
  } else if (Waiter::Clock::now() > deadline) {
    groups.interrupt(attempt, CollectiveError::Cause::deadline);
  }
}

}  // namespace dstune
