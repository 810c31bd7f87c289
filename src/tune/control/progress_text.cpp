#include "control/progress_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "control/columns.hpp"
#include "dstune/base/text.hpp"
#include "dstune/ranking/scoreboard.hpp"

namespace dstune::progress_text {
namespace {

/// Running experiments that have a row.
constexpr std::size_t max_running_rows = 3;
/// An estimate whose ends are further apart than this is told as a range.
constexpr double max_ratio_of_ends = 2;

/// Nobody reads more digits of a guess: tens of seconds from a minute on, then minutes.
double rounded(double estimate_s) {
  const double unit = estimate_s < 60 ? 1 : estimate_s < 600 ? 10 : 60;
  return std::max(1.0, std::round(estimate_s / unit)) * unit;
}

/// Three digits that count.
std::string number(double value) {
  const bool is_plain = std::abs(value) >= 100 && std::abs(value) < 1e6;
  return is_plain ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

/// ", 1.31 times the baseline"; empty where that has not run.
std::string gain(const BestSoFar& best) {
  if (best.is_baseline) return ", the baseline";
  return best.gain ? fmt::format(", {} times the baseline", format_factor(*best.gain)) : "";
}

std::string value_of_best(const BestSoFar& best) {
  return fmt::format("{} {}{}{}", number(best.value), unit_text(best.metric),
                     best.is_expected ? " expected" : "", gain(best));
}

std::string_view ending_of(Status status) {
  switch (status) {
    case Status::out_of_memory:
      return "ran out of memory";
    case Status::timed_out:
      return "took too long";
    default:
      return "failed";
  }
}

/// The work of a phase, as its first line says it.
std::string phase_work(const JobState& state) {
  switch (state.phase) {
    case TuningPhase::start:
      return "reads the input and plans the memory of every member";
    case TuningPhase::profiling:
      return "times the operations of a step on this machine";
    case TuningPhase::planning:
      return "predicts the speed of every member";
    case TuningPhase::search:
      return "up to " + format_count(state.planned, "experiment");
    case TuningPhase::finals:
      return "the best few run again, alone and in turns";
    case TuningPhase::writing:
      return "the answer and its reports";
    case TuningPhase::done:
      return "";
  }
  return "";
}

}  // namespace

std::string duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", std::max(0.0, seconds));
  const std::int64_t whole = std::llround(std::min(seconds, 9e15));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600 && whole % 60 == 0) return fmt::format("{} m", whole / 60);
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole / 60 % 60);
}

std::string local_time(std::chrono::system_clock::time_point time) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm local{};
  localtime_r(&seconds, &local);
  const long offset = local.tm_gmtoff / 60;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}{:02}:{:02}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     offset < 0 ? '-' : '+', std::abs(offset) / 60, std::abs(offset) % 60);
}

std::string result(const Experiment& experiment, const Measurement& measurement, Metric metric,
                   std::optional<double> expected) {
  const auto value = metric_value(measurement, metric, experiment);
  // Its reason says that it was stopped.
  if (!value && measurement.status == Status::raced_out) return measurement.reason;
  if (!value) return fmt::format("{}: {}", ending_of(measurement.status), measurement.reason);
  std::string text = fmt::format("{} {}", number(value->value), unit_text(metric));
  if (std::isfinite(value->ci_high)) {
    const double half_percent = 50 * (value->ci_high - value->ci_low) / value->value;
    // A few steps that differ a lot bound nothing that a digit could tell.
    text += half_percent >= 100 ? " ±100 % or more" : fmt::format(" ±{:.1f} %", half_percent);
  }
  if (expected) text += fmt::format(" here, {} expected in your training", number(*expected));
  return text;
}

std::string place(std::string_view name, int num_ranks) {
  return fmt::format("{} on {}", name, format_count(static_cast<std::uint64_t>(num_ranks), "rank"));
}

std::string of_best(const BestSoFar& best) {
  return fmt::format("{}: {}", place(best.name, best.num_ranks), value_of_best(best));
}

std::string now_best(const BestSoFar& best) {
  return ". Best so far" + gain(best);
}

std::string known(std::size_t count, const std::optional<BestSoFar>& best) {
  const bool is_one = count == 1;
  return fmt::format(
      "{} {} known from earlier jobs and not repeated; {}.", format_count(count, "result"),
      is_one ? "is" : "are",
      best ? (is_one ? "it is " : "the best is ") + of_best(*best) : "none has a speed");
}

std::string counts(const JobState& state) {
  return fmt::format("{} done, {} running", state.done, state.running);
}

std::string left(const TimeLeft& left) {
  const bool is_wide = left.high_s > max_ratio_of_ends * left.low_s && left.high_s > left.low_s;
  std::string text = is_wide ? fmt::format("{} to {} left", duration(rounded(left.low_s)),
                                           duration(rounded(left.high_s)))
                             : fmt::format("about {} left", duration(rounded(left.seconds)));
  if (!left.assumes.empty()) text += fmt::format(" ({})", left.assumes);
  return text;
}

std::string time_used(const JobState& state) {
  if (!state.time_limit_s) return duration(state.elapsed_s) + " so far";
  return fmt::format("{} of {} used", duration(state.elapsed_s), duration(*state.time_limit_s));
}

std::vector<std::string> status(const JobState& state, const std::optional<BestSoFar>& best,
                                std::size_t max_columns) {
  std::string text =
      fmt::format("{}: {}, {}", phase_name(state.phase, ""), counts(state), time_used(state));
  if (state.left) text += ", " + left(*state.left);
  if (!best) return {text + "."};
  const std::string of_best = "est so far is " + progress_text::of_best(*best) + ".";
  std::string one_line = text + "; b" + of_best;
  if (num_columns(one_line) <= max_columns) return {std::move(one_line)};
  return {text + ".", "B" + of_best};
}

std::string phase_name(TuningPhase phase, std::string_view search_name) {
  if (phase == TuningPhase::search && !search_name.empty())
    return fmt::format("Search {}", search_name);
  std::string name(to_text(phase));
  name.front() = static_cast<char>(name.front() - 'a' + 'A');
  return name;
}

std::string phase_begins(const JobState& state, std::string_view search_name,
                         std::optional<TuningPhase> ended, double ended_s) {
  std::string line;
  if (ended) line = fmt::format("{} took {}. ", phase_name(*ended, search_name), duration(ended_s));
  if (state.phase == TuningPhase::done) {
    line += fmt::format("{} after {}", state.reason.empty() ? "Done" : "Stopped early",
                        duration(state.elapsed_s));
    return line + (state.reason.empty() ? "." : ": " + state.reason + ".");
  }
  return line + fmt::format("{}: {}.", phase_name(state.phase, search_name), phase_work(state));
}

std::string more_failures(std::size_t count, Status status, std::string_view reason,
                          bool was_told) {
  return fmt::format("{} {}{}{}: {}", count, was_told ? "more " : "", ending_of(status),
                     was_told || count > 1 ? " for the same reason" : "", reason);
}

std::string other_failures(std::size_t count) {
  return fmt::format("{} more failed for other reasons: results.csv has each", count);
}

std::vector<std::string> rows(const JobState& state, std::string_view search_name,
                              const std::optional<BestSoFar>& best,
                              const std::vector<RunningExperiment>& running) {
  std::vector<std::string> rows;
  rows.push_back(fmt::format("{} for {}, {}", phase_name(state.phase, search_name),
                             duration(state.phase_elapsed_s), time_used(state)));
  if (state.phase != TuningPhase::search && state.phase != TuningPhase::finals) return rows;
  rows.push_back(counts(state));
  if (state.left) rows.back() += ", " + left(*state.left);
  // The value is first, and so the last that a narrow window cuts.
  if (best)
    rows.push_back(fmt::format("Best so far: {} ({})", value_of_best(*best),
                               place(best->name, best->num_ranks)));
  for (std::size_t index = 0; index < std::min(running.size(), max_running_rows); ++index) {
    const RunningExperiment& one = running[index];
    rows.push_back("Running: " + place(one.name, one.num_ranks));
    if (one.steps > 0) rows.back() += fmt::format(", step {}", one.steps);
  }
  return rows;
}

}  // namespace dstune::progress_text
