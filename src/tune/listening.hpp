#pragma once
/// What a second thread of a rank does while the first may be stuck: inside CUDA, behind a
/// collective whose peer is gone, or in a workload that never returns.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "dstune/group/group_table.hpp"

namespace dstune {

/// Does something again and again on a thread of its own, until it is destroyed.
class Regularly {
 public:
  Regularly(std::chrono::milliseconds interval, std::function<void()> work)
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

/// Ends the collectives of an attempt on devices once it is aborted or past its deadline. Of a rank
/// that polls this is the second end. Local.
inline void interrupt_where_over(GroupTable& groups, std::uint64_t attempt, bool is_aborted,
                                 Waiter::Clock::time_point deadline) {
  if (is_aborted) {
    groups.interrupt(attempt, CollectiveError::Why::aborted);
  } else if (Waiter::Clock::now() > deadline) {
    groups.interrupt(attempt, CollectiveError::Why::deadline);
  }
}

}  // namespace dstune
