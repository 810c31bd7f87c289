#pragma once
/// The state of a job while it runs, and at its end, as the progress lines, `status` and the page
/// tell it. Local.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dstune {

/// The phases of a job, in their order. A job without finals passes over them.
enum class TuningPhase { start, profiling, planning, search, finals, writing, done };

[[nodiscard]] constexpr std::string_view to_text(TuningPhase phase) {
  switch (phase) {
    case TuningPhase::start:
      return "start";
    case TuningPhase::profiling:
      return "profiling";
    case TuningPhase::planning:
      return "planning";
    case TuningPhase::search:
      return "search";
    case TuningPhase::finals:
      return "finals";
    case TuningPhase::writing:
      return "writing";
    case TuningPhase::done:
      return "done";
  }
  return "";
}

/// An estimate of the time until the search and its finals end.
struct TimeLeft {
  double seconds = 0;
  double low_s = 0, high_s = 0;  ///< it lies between these in about four of five jobs
  std::string assumes{};         ///< a clause: "12 more experiments of 2 s, 2 at once"
};

struct JobState {
  bool is_running = false;
  TuningPhase phase = TuningPhase::start;
  std::chrono::system_clock::time_point as_of{}, began_at{};
  double elapsed_s = 0;
  double phase_elapsed_s = 0;
  std::size_t planned = 0;  ///< members that may run
  std::size_t done = 0;     ///< experiments that ended, known ones among them
  std::size_t known = 0;    ///< known from earlier jobs
  std::size_t running = 0;
  std::optional<TimeLeft> left{};        ///< nothing where nothing can be said yet
  std::optional<double> time_limit_s{};  ///< of the whole job, from its beginning
  std::string reason{};                  ///< why the job stopped early; else empty
};

}  // namespace dstune
