#pragma once
/// When the job is to end before it is done: at a signal, or at its time limit. Local.

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "moment.hpp"

namespace dstune {

/// From now on SIGTERM, SIGINT, SIGUSR1, SIGUSR2 and SIGXCPU are counted instead of ending the
/// process: requests to stop.
void count_stop_signals();
/// How many came so far.
int stop_signals();

struct TimeLimit {
  double left_s = 0;
  std::string source;  ///< in words, for the user
};

/// The option, else the batch system's environment: SLURM_JOB_END_TIME or SCR_END_TIME (seconds
/// since the epoch), FLUX_JOB_EXPIRATION likewise; nothing where nobody says. `variable` looks one
/// up. Starts no process to find out.
std::optional<TimeLimit> find_time_limit(const std::optional<double>& option_s,
                                         const std::function<const char*(const char*)>& variable,
                                         std::chrono::system_clock::time_point now);

/// What the controller asks before it goes on.
class JobEnd {
 public:
  /// Nothing is started after `end_at`; nothing: there is no limit. `signals`: how many have
  /// arrived; empty: none will.
  explicit JobEnd(std::optional<SteadyClock::time_point> end_at = {},
                  std::function<int()> signals = {})
      : end_at_(end_at), signals_(std::move(signals)) {}

  /// Why the job is to stop now; empty: it is not.
  [[nodiscard]] std::string reason(Moment now) const;
  /// The user has asked again, and does not wait.
  [[nodiscard]] bool is_urgent() const { return num_signals() > 1; }
  /// Infinite where there is no limit.
  [[nodiscard]] double time_left_s(Moment now) const;

 private:
  [[nodiscard]] int num_signals() const { return signals_ ? signals_() : 0; }

  std::optional<SteadyClock::time_point> end_at_;
  std::function<int()> signals_;
};

}  // namespace dstune
