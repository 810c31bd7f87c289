#pragma once
/// Rank 0's other half: starts what is on the agenda, hears how it ends, and keeps the scoreboard.
/// One thread; knows the time but no MPI, so that it is tested with a mailbox in memory.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/agenda.hpp"
#include "control/estimate.hpp"
#include "control/progress.hpp"
#include "control/publisher.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/instrument/instrument.hpp"
#include "dstune/report/job_state.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/tune/job.hpp"
#include "protocol/attempts.hpp"
#include "start/open_job.hpp"
#include "watch/waiting.hpp"

namespace dstune {

class JobPredictor;
class Watchdog;
struct ProcessMemoryPredictor;
struct BytesBefore;

/// Limits and signals that the controller asks for before it goes on.
struct JobEnd {
  std::optional<SteadyClock::time_point> end_at{};  ///< nothing is started after it
  std::function<int()> signals{};                   ///< how many have arrived; empty: none will
  /// "rank 1 died", where its launcher then stops all others; empty: nobody can tell.
  std::function<std::string()> who_died{};

  /// Returns why the job is to stop now; empty: it is not.
  [[nodiscard]] std::string reason(Moment now) const;
  /// The user has asked again, and does not wait.
  [[nodiscard]] bool is_urgent() const { return signals && signals() > 1; }
  /// Infinite where there is no limit.
  [[nodiscard]] double time_left_s(Moment now) const;
};

/// Decisions for the whole job.
struct JobPolicy {
  SteadyClock::time_point began = SteadyClock::now();  ///< from which time is reported
  std::uint64_t instrument = 0;  ///< that runs experiments, by its place among the job's
  std::string search_name{};     ///< for the log: "with the built-in step"
  std::string finals_note{};     ///< for the log, when finals begin; empty: nothing
  /// Returns what the instrument is sent for an experiment; empty: nothing.
  std::function<RunInput(const Experiment&)> input{};
  std::function<Attempts::Limits(const PlannedExperiment&)> limits{};
  JobEnd end{};
  std::set<int> ranks_here{};  ///< of rank 0's node
  /// How busy the host has been since the search began; empty, or nothing: nobody knows.
  std::function<std::optional<HostLoad>()> host_load{};
};

/// Who hears of experiments. All of them outlive the controller.
struct Listeners {
  Journal& journal;
  Publisher& publisher;
  Progress& progress;
  JobPredictor* times = nullptr;             ///< null: times are not predicted
  ProcessMemoryPredictor* memory = nullptr;  ///< null: nor is what processes hold
  /// Returns the overheads of a step in the user's training; empty where no transformer is trained.
  std::function<Overheads(const Experiment&)> overheads{};
};

class Controller {
 public:
  Controller(const Search& search, JobPolicy policy, AttemptDriver& driver, Listeners listeners);

  /// The whole search. Workers are idle afterwards or lost, but not yet told to quit.
  ExitCode run();

  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// How long the search and its finals still take, as it looks now. Nothing: it can not be said.
  [[nodiscard]] std::optional<TimeLeft> time_left() const;
  /// Tells whether MPI can be ended in the ordinary way. Then nobody is lost, and no communicator
  /// between nodes was abandoned, whose peers could still be inside.
  [[nodiscard]] bool can_finalize() const {
    return driver_.attempts().lost_ranks().empty() && !has_abandoned_communicator_;
  }

 private:
  bool start_next();
  void start(Agenda::Next next);
  void race(Attempts::Number number, const Run& run);
  void race_all();
  bool listen();
  void retire_lost();
  void take(Attempts::Ended ended);
  void tell(Attempts::Ended& ended, std::size_t member);
  void retire(Agenda::Next& running, const Attempts::Ended& ended);
  void record(std::size_t member, Record record, bool is_known);
  [[nodiscard]] Observation observation_of(std::size_t member) const;
  void revise_all_but(std::optional<std::size_t> member);
  [[nodiscard]] Overheads overheads_of(const Experiment& experiment) const;
  void record_repeat(std::size_t member, Repeat repeat);
  void take_turns(const Run& run, Attempts::Ended ended);
  [[nodiscard]] int turn_steps(std::size_t member) const;
  [[nodiscard]] Attempts::Limits limits_of(const Run& run) const;
  void look_ahead();
  void release(const std::function<bool(std::size_t member)>& is_over);
  [[nodiscard]] bool is_measuring() const;
  [[nodiscard]] double elapsed_s() const { return seconds(driver_.now().steady - began_); }
  [[nodiscard]] double time_left_s() const { return policy_.end.time_left_s(driver_.now()); }
  // The job's end.
  void watch();
  void stop(const std::string& reason);
  bool tell();
  bool publish();
  void finish();
  [[nodiscard]] JobState state_at_end() const;
  ExitCode conclude();
  ExitCode judge_end();

  [[nodiscard]] const PlannedExperiment& planned(std::size_t member) const {
    return search_.space.members[member].planned;
  }

  Search search_;
  JobPolicy policy_;
  AttemptDriver& driver_;
  Listeners listeners_;

  Agenda agenda_;
  TimeEstimate estimate_;
  std::map<Attempts::Number, Agenda::Next> running_;
  SteadyClock::time_point began_;
  bool is_stopping_ = false;
  bool has_abandoned_communicator_ = false;
  std::map<std::size_t, std::vector<int>> built_;  ///< finalists that stay built, and where
  std::optional<Attempts::Number> last_turns_;     ///< nobody has looked ahead of yet
  std::set<int> retired_;                          ///< lost ranks that are out of the pool
  std::string reason_;
  std::set<std::string> told_;  ///< notes of experiments, each said once
};

/// Runs rank 0's preparation and turns its failures into a message and an exit code. `reason`, if
/// any, becomes what the first message said.
template <class Work>
ExitCode guarded(Work&& work, std::string* reason = nullptr) {
  const auto note = [reason](const std::string& text) {
    if (reason != nullptr && reason->empty()) *reason = text;
    log::error(text);
  };
  try {
    return work();
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems()) note(problem.text());
    return ExitCode::bad_input;
  } catch (const UsageError& error) {
    note(error.what());
    return ExitCode::usage;
  } catch (const DeviceError& error) {
    note(error.what());
    return ExitCode::no_device;
  } catch (const IoError& error) {
    note(error.what());
    return ExitCode::not_writable;
  }
}

/// Returns what the history says of a space before anything runs; `keys`: the record key of each
/// member.
Scoreboard known_scoreboard(const PlannedSpace& space, const std::vector<std::string>& keys,
                            const History& history, ScoreboardSetup setup);
/// Counts, by member, the jobs that died while it was run once more.
std::map<std::size_t, int> deaths_in_repeats(const std::vector<std::string>& keys,
                                             const History& history);

/// Everything but the worker: measures the machine, runs the controller, prints the summary. Ends
/// with a QUIT to every rank. Rank 0 only; talks to the workers through the mailbox.
void control(const JobOptions& options, OpenJob& ready, const Topology& topology,
             const std::vector<RankDevice>& devices, const BytesBefore& bytes, Mailbox& mailbox,
             Progress& progress, Watchdog& watchdog);

}  // namespace dstune
