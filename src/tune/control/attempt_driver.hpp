#pragma once
/// Drives the attempts under way: brings them the workers' messages, the time and the deaths of
/// processes, and sends what they want said. Rank 0 only; one thread.

#include <functional>
#include <optional>
#include <utility>

#include "control/attempts.hpp"
#include "dstune/comm/mailbox.hpp"

namespace dstune {

class AttemptDriver {
 public:
  /// `is_dead`: whether a rank's process is known to be gone; empty where nobody can tell. The
  /// mailbox outlives it.
  AttemptDriver(Mailbox& mailbox, Attempts::Options options,
                std::function<bool(int world_rank)> is_dead = {}, JobClock clock = Moment::now)
      : attempts_(std::move(options)),
        mailbox_(mailbox),
        is_dead_(std::move(is_dead)),
        clock_(std::move(clock)) {}

  [[nodiscard]] Attempts& attempts() { return attempts_; }
  [[nodiscard]] Moment now() const { return clock_(); }

  /// Takes in what has arrived and who died, and looks at the limits. Whether anything was heard
  /// but PROGRESS: more of it follows, which can wait; attention would cost the rank beside.
  bool listen() {
    bool has_heard = false;
    while (auto received = mailbox_.try_receive()) {
      Message message = decode(received->data);
      has_heard |= !std::holds_alternative<message::Progress>(message);
      attempts_.on(received->source, std::move(message), now());
    }
    check_liveness();
    attempts_.tick(now());
    return has_heard;
  }

  /// Sends what is to be sent. Whether there was anything.
  bool speak() {
    const auto outgoing = attempts_.take_outgoing();
    for (const auto& [world_rank, message] : outgoing) mailbox_.send(world_rank, encode(message));
    return !outgoing.empty();
  }

 private:
  static constexpr std::chrono::milliseconds dead_interval{200};

  void check_liveness() {
    const auto now = clock_().steady;
    if (!is_dead_ || now - liveness_checked_at_ <= dead_interval) return;
    liveness_checked_at_ = now;
    for (const int rank : attempts_.awaited_ranks())
      if (is_dead_(rank)) attempts_.died(rank);
  }

  Attempts attempts_;
  Mailbox& mailbox_;
  std::function<bool(int)> is_dead_;
  JobClock clock_;
  SteadyClock::time_point liveness_checked_at_{};
};

}  // namespace dstune
