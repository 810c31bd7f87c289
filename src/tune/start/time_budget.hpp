#pragma once
/// How long the job may take, from the start of the program to its end.

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "dstune/tune/job.hpp"
#include "watch/waiting.hpp"

namespace dstune {

struct TimeLimit {
  double left_s = 0;
  std::string source;  ///< in words, for the user
};

/// The option, else the batch system's environment: SLURM_JOB_END_TIME or SCR_END_TIME (seconds
/// since the epoch), FLUX_JOB_EXPIRATION likewise; nothing where nobody says. `variable` looks one
/// up. Starts no process to find out. `now`: from when on it is left.
std::optional<TimeLimit> find_time_limit(const std::optional<double>& option_s,
                                         const std::function<const char*(const char*)>& variable,
                                         std::chrono::system_clock::time_point now);

/// When planning and searching end, and what is kept of the job's time for a clean end.
struct TimeBudget {
  static constexpr double default_reserve_s = 60;

  SteadyClock::time_point began{};
  std::optional<SteadyClock::time_point> end_at{};
  double reserve_s = default_reserve_s;

  [[nodiscard]] bool is_over() const { return end_at && SteadyClock::now() >= *end_at; }
  /// Share of the time until the end that is gone; 1 where it is over, 0 without a limit.
  [[nodiscard]] double used_share() const;
  /// For experiments to end after STOP, and for members to answer ABORT.
  [[nodiscard]] double stop_grace_s() const { return std::max(1.0, reserve_s / 3); }
  [[nodiscard]] double abort_grace_s() const { return std::max(1.0, reserve_s / 6); }
};

/// Returns the job's budget, and logs where the limit comes from. Local.
TimeBudget time_budget(const JobOptions& options);

}  // namespace dstune
