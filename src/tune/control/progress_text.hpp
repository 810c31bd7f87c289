#pragma once
/// The words in which a job tells where it is. Knows no clock and writes nothing. Local.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/best_so_far.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/report/job_state.hpp"

namespace dstune {

/// An experiment that runs.
struct RunningExperiment {
  std::string name{};
  int num_ranks = 1;
  int steps = 0;
};

namespace progress_text {

/// A line of the log has at most so many columns, its beginning and time stamp among them.
inline constexpr std::size_t max_line_columns = 200;

/// "0.4 s", "12 s", "2 m 30 s", "1 h 05 m".
[[nodiscard]] std::string duration(double seconds);
/// ISO 8601, local with its offset: "2026-11-29T14:31:05+01:00".
[[nodiscard]] std::string local_time(std::chrono::system_clock::time_point time);

/// "52.1 samples/s ±0.8 %", or why there is none: "failed: …". `expected`: in the user's training.
[[nodiscard]] std::string result(const Experiment& experiment, const Measurement& measurement,
                                 Metric metric, std::optional<double> expected);
/// "z1_gas1_tmbspg8 on 2 ranks".
[[nodiscard]] std::string place(std::string_view name, int num_ranks);
/// "z1_gas1_tmbspg8 on 2 ranks: 52.1 samples/s, 1.31 times the baseline".
[[nodiscard]] std::string of_best(const BestSoFar& best);
/// Behind the result of its run: ". Best so far, 1.31 times the baseline".
[[nodiscard]] std::string now_best(const BestSoFar& best);
/// The one line on what earlier jobs have left.
[[nodiscard]] std::string known(std::size_t count, const std::optional<BestSoFar>& best);

/// "12 done, 2 running".
[[nodiscard]] std::string counts(const JobState& state);
/// "about 2 m 30 s left (12 more experiments of 2 s, 2 at once)", or a range where the estimate is
/// not better than that.
[[nodiscard]] std::string left(const TimeLeft& left);
/// "1 m 12 s of 10 m used"; without a limit "1 m 12 s so far".
[[nodiscard]] std::string time_used(const JobState& state);

/// The line with all counts of a search or its finals. The best has one of its own where both
/// together are too long.
[[nodiscard]] std::vector<std::string> status(const JobState& state,
                                              const std::optional<BestSoFar>& best,
                                              std::size_t max_columns);

/// "Search with the built-in step", "Profiling": as the lines call a phase.
[[nodiscard]] std::string phase_name(TuningPhase phase, std::string_view search_name);
/// The line at the beginning of a phase, which tells how long the one before took.
[[nodiscard]] std::string phase_begins(const JobState& state, std::string_view search_name,
                                       std::optional<TuningPhase> ended, double ended_s);

/// "8 more failed for the same reason: …"; the first of a reason that had no line yet: "8 failed".
[[nodiscard]] std::string more_failures(std::size_t count, Status status, std::string_view reason,
                                        bool was_told);
[[nodiscard]] std::string other_failures(std::size_t count);

/// The rows of the block on a terminal.
[[nodiscard]] std::vector<std::string> rows(const JobState& state, std::string_view search_name,
                                            const std::optional<BestSoFar>& best,
                                            const std::vector<RunningExperiment>& running);

}  // namespace progress_text
}  // namespace dstune
