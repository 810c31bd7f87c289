#pragma once
/// The publisher decides what a job writes beside its journal, and when. Local.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/show_times.hpp"
#include "dstune/base/error.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/report/job_state.hpp"
#include "dstune/report/results.hpp"
#include "watch/waiting.hpp"

namespace dstune {

/// Writes files on a thread of its own, in order: creating a file may take a disk a third of a
/// millisecond, and the controller has better things to do meanwhile. For files that the journal
/// can restore. At its end what was added is finished, unless something failed.
class BackgroundWriter {
 public:
  /// Throws what an earlier work threw; nothing is done after that.
  void add(std::function<void()> work);
  /// How many works wait for their turn.
  [[nodiscard]] std::size_t num_waiting();
  /// Waits until everything is written. Throws likewise.
  void drain();

 private:
  void run(const std::stop_token& stop);
  void check_failure();  ///< with the mutex held

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> queue_;
  std::exception_ptr failure_;
  bool is_busy_ = false;
  std::jthread thread_{
      [this](const std::stop_token& stop) { run(stop); }};  ///< last: it uses the rest
};

/// Writes what the scoreboard says into the results folder: the answer as it improves, each
/// experiment's files some seconds after its journal entry is durable, the reports at the end. A
/// job that dies before leaves fewer files; the next one writes those that lack.
class Publisher {
 public:
  struct Options {
    SteadyClock::time_point began = SteadyClock::now();  ///< the job
    std::optional<UserCommand> training_command{};
    /// A rank's memory over a step, as planned; none where nothing is planned.
    std::function<std::optional<MemoryTimeline>(const Experiment&)> memory_timeline{};
  };
  /// The references outlive it.
  Publisher(ResultsFolder& results, const Scoreboard& scoreboard, Options options)
      : results_(results),
        scoreboard_(scoreboard),
        options_(std::move(options)),
        times_(options_.began) {}

  // Members whose files are to be written after their end, or at the job's.
  void started(std::size_t member) { begun_.insert(member); }
  void ended(std::size_t member) { ended_.push_back(member); }
  /// Notes what Python said of it, where it failed there.
  void failed(std::size_t member, std::string traceback) {
    tracebacks_.emplace_back(member, std::move(traceback));
  }
  /// After the journal is durable. Throws IoError, also of what was written in the background.
  void publish(SteadyClock::time_point now);
  /// Tells whoever looks into the folder where the job is, where it is time for that: status.json,
  /// and the page. `is_quiet`: no step is timed on this node, which writing the page would disturb.
  /// A folder that can not be written is told once.
  void show(const JobState& state, bool is_quiet, SteadyClock::time_point now);
  /// Everything that is known at the end. `running`: members whose record may still change;
  /// `state`: the job's, as the page tells it.
  void finish(const std::set<std::size_t>& running, const JobState& state);
  void write_exit_status(ExitCode code, const std::string& reason) {
    results_.write_exit_status(code, reason);
  }
  /// The answer that the reports give; after finish().
  [[nodiscard]] const Answer& answer() const { return answer_; }
  /// Waits until everything is written.
  void drain() { writer_.drain(); }

 private:
  struct Waiting {
    std::size_t member = 0;
    SteadyClock::time_point since;
  };
  void write_files(std::size_t member);
  void write_metrics(std::size_t member);
  void warn_once(const IoError& error);
  void write(const std::optional<Recommendation>& recommendation);

  ResultsFolder& results_;
  const Scoreboard& scoreboard_;
  Options options_;
  std::set<std::size_t> begun_;  ///< their exp.json and its like are to be written
  std::vector<std::size_t> ended_;
  std::deque<Waiting> waiting_;  ///< that ended, in this order
  std::vector<std::pair<std::size_t, std::string>> tracebacks_;
  std::set<std::size_t> held_;          ///< their metrics.json waits: they may run again
  std::uint64_t written_revision_ = 0;  ///< of the answer
  SteadyClock::time_point next_answer_at_{};
  ShowTimes times_;
  std::atomic<bool> has_warned_ = false;
  Answer answer_;
  BackgroundWriter writer_;  ///< last: what it writes is above
};

}  // namespace dstune
