#pragma once
/// Rank 0's other half: starts what is on the agenda, hears how it ends, and keeps the scoreboard.
/// One thread; knows the time but no MPI, so that it is tested with a mailbox in memory.

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/agenda.hpp"
#include "control/attempt_driver.hpp"
#include "control/job_end.hpp"
#include "control/progress.hpp"
#include "control/publisher.hpp"
#include "dstune/base/error.hpp"
#include "dstune/report/journal.hpp"

namespace dstune {

class JobPredictor;
class ProcessMemoryPredictor;

/// What is decided for the whole job.
struct JobPolicy {
  bool sends_ds_config = false;  ///< with every assignment: the workload reads it
  std::function<Attempts::Limits(const PlannedExperiment&)> limits{};
  JobEnd end{};
};

/// Who hears of experiments. All of them outlive the controller.
struct Listeners {
  Journal& journal;
  Publisher& publisher;
  Progress& progress;
  JobPredictor* times = nullptr;             ///< null: times are not predicted
  ProcessMemoryPredictor* memory = nullptr;  ///< null: nor is what processes hold
  /// Of a step in the user's training; empty where no transformer is trained.
  std::function<Overheads(const Experiment&)> overheads{};
};

class Controller {
 public:
  Controller(const Search& search, JobPolicy policy, AttemptDriver& driver, Listeners listeners);

  /// The whole search. Workers are idle afterwards or lost, but not yet told to quit.
  ExitCode run();

  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// Whether MPI can be ended in the ordinary way: nobody is lost, and no communicator between
  /// nodes was abandoned, whose peers could still be inside.
  [[nodiscard]] bool can_finalize() const {
    return driver_.attempts().lost_ranks().empty() && !has_abandoned_communicator_;
  }

 private:
  bool start_next();
  void start(Agenda::Next next);
  void race(Attempts::Number number, const Run& run);
  void race_all();
  bool listen();
  void take(Attempts::Ended ended);
  void retire(Agenda::Next& running, const Attempts::Ended& ended);
  void record(std::size_t row, Record record, bool is_known);
  void record_repeat(std::size_t row, Repeat repeat);
  [[nodiscard]] bool is_measuring() const;
  [[nodiscard]] double time_left_s() const { return policy_.end.time_left_s(driver_.now()); }
  // The job's end.
  void watch();
  void stop(const std::string& reason);
  bool publish();
  void finish();
  ExitCode conclude();

  [[nodiscard]] const PlannedExperiment& planned(std::size_t row) const {
    return search_.space.members[row].planned;
  }

  Search search_;
  JobPolicy policy_;
  AttemptDriver& driver_;
  Listeners listeners_;

  Agenda agenda_;
  std::map<Attempts::Number, Agenda::Next> running_;
  SteadyClock::time_point began_;
  bool is_stopping_ = false;
  bool has_abandoned_communicator_ = false;
  std::string reason_;
};

}  // namespace dstune
