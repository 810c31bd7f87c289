#pragma once
/// How long the job may still run, and who says so. Local; starts no process to find out.

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace dstune {

struct TimeLimit {
  double left_s = 0;
  std::string source;  ///< in words, for the user
};

/// The option, else the batch system's environment: SLURM_JOB_END_TIME or SCR_END_TIME (seconds
/// since the epoch), FLUX_JOB_EXPIRATION likewise; nothing where nobody says. `variable` looks one
/// up.
std::optional<TimeLimit> find_time_limit(const std::optional<double>& option_s,
                                         const std::function<const char*(const char*)>& variable,
                                         std::chrono::system_clock::time_point now);

}  // namespace dstune
