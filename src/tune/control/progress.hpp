#pragma once
/// A job tells on stderr where it is: its phases, what ended, what is left. Rank 0 only, one thread
/// at a time. The words are progress_text's, the rows on a terminal LiveBlock's.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/failures.hpp"
#include "control/live_block.hpp"
#include "control/progress_text.hpp"
#include "dstune/base/clock.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/report/job_state.hpp"
#include "dstune/tune/job.hpp"
#include "watch/waiting.hpp"

namespace dstune {

/// Lines that follow each other closely are left out: some at once, then one a second.
class LineRate {
 public:
  /// Returns whether one more is allowed now, and counts it.
  bool take(SteadyClock::time_point now);

 private:
  static constexpr double max_lines = 10;
  double lines_ = max_lines;
  SteadyClock::time_point at_{};
};

class Progress {
 public:
  /// live: a block of rows that is rewritten. lines: one an event.
  enum class Style { silent, lines, live };
  [[nodiscard]] static Style style_of(const JobOptions& options);

  using Estimate = std::function<std::optional<TimeLeft>()>;
  struct Options {
    Style style = Style::silent;
    SteadyClock::time_point began = SteadyClock::now();  ///< of the job
    JobClock clock = Moment::now;
    Estimate time_left{};  ///< empty: nobody estimates it
  };
  /// The job begins with the phase `start`.
  explicit Progress(Options options,
                    std::shared_ptr<ProgressSink> sink = std::make_shared<StderrSink>());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Tells that the phase before has ended and this one begins; nothing where it goes on.
  void begin(TuningPhase phase);
  /// `num_planned`: members that may run. `name`: "with the built-in step", for the lines.
  void begin_search(std::size_t num_planned, std::string name);
  void set_time_limit(double limit_s) { state_.time_limit_s = limit_s; }
  void set_estimate(Estimate time_left) { options_.time_left = std::move(time_left); }
  /// The job ends before it is done.
  void stop(const std::string& reason) {
    state_.reason = reason;
    state_.left.reset();
    options_.time_left = {};
  }

  /// A result that an earlier job has left; tell_known() tells of all of them.
  void take_known(std::size_t member);
  void tell_known();
  // Runs by the numbers of their attempts.
  /// `others`: how many take turns with it.
  void started(std::uint64_t attempt, const Experiment& experiment, std::size_t others = 0);
  void stepped(std::uint64_t attempt, int steps);
  void left(std::uint64_t attempt);
  /// Before the run that has changed it is told.
  void set_best(std::optional<BestSoFar> best) { best_ = std::move(best); }
  /// `expected`: what it is ranked by, where that is not what was measured.
  void ended(std::size_t member, const Record& record, Metric metric,
             std::optional<double> expected, bool is_best);
  /// One that was run once more.
  void repeated(const Experiment& experiment, const Repeat& repeat, Metric metric);
  /// Time has passed: to be called often.
  void tick();

  /// The state as of the last event or tick.
  [[nodiscard]] const JobState& state() const { return state_; }

 private:
  void take_time();
  void say(const std::string& text);
  void say_status();
  void say_results();
  void say_rest();
  [[nodiscard]] bool is_status_due() const;
  void draw();

  Options options_;
  std::shared_ptr<ProgressSink> sink_;
  LiveBlock block_;
  JobState state_;
  std::string search_name_;
  Moment now_{};
  SteadyClock::time_point phase_began_;
  std::set<std::size_t> done_;  ///< members
  std::map<std::uint64_t, RunningExperiment> running_;
  std::optional<BestSoFar> best_;
  std::string told_best_;  ///< its name
  FailureCounts failures_;
  LineRate rate_, failure_rate_;
  /// Results that have a line with the next tick: by then the ranks have the next experiments.
  struct Result {
    std::size_t num_done = 0;
    std::string text{};
  };
  std::vector<Result> results_;
  int num_repeats_ = 0, num_controls_ = 0, num_finals_ = 0;
  bool has_news_ = false;    ///< since the last line with the counts
  bool is_changed_ = false;  ///< since the block was drawn
  std::optional<SteadyClock::time_point> estimated_at_, told_at_, drawn_at_;
};

}  // namespace dstune
