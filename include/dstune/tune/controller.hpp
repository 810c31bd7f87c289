#pragma once
/// Rank 0's other half: asks the tuner, places experiments, talks to their groups, writes down what
/// happened. One thread; point-to-point messages only; knows the time but no MPI, so that it is
/// tested with a mailbox in memory.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dstune/comm/mailbox.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/report/history.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/report/results.hpp"
#include "dstune/schedule/scheduler.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"
#include "dstune/tune/background_writer.hpp"
#include "dstune/tune/outside_memory.hpp"
#include "dstune/tune/progress.hpp"
#include "dstune/tune/protocol.hpp"

namespace dstune {

class JobPredictor;

struct ControllerOptions {
  using Clock = std::chrono::steady_clock;

  Metric metric = Metric::throughput;
  /// An earlier job has ended this search: nothing new is measured. What a tuner believes depends
  /// on the order in which it heard, so that it might go on for a little.
  bool is_search_complete = false;
  bool races = false;  ///< challengers are stopped where they have lost to the best so far
  /// The best is run again during the search, to see how much runs differ. Times that are given
  /// do not.
  bool repeats_best = false;
  std::optional<double> trial_timeout_s;
  std::optional<Clock::time_point> end_at;  ///< nothing is started after it; then exit 75
  /// Without a sign of life for so long an attempt is aborted; per experiment, by its index.
  std::function<double(const PlannedExperiment&)> patience_s;
  /// How long the device of a member may take to come to rest after a failure; empty: it always
  /// is.
  std::function<double(const PlannedExperiment&)> rest_s;
  /// Where there is no trial_timeout_s; may be empty.
  std::function<double(const Experiment&)> default_timeout_s;
  /// Predicts what is to be measured and learns from what was; may be null.
  JobPredictor* predictor = nullptr;
  std::uint64_t first_attempt = 1;  ///< numbers below it were used
  /// For members to answer ABORT before they count as lost, beside what devices may take to come to
  /// rest; that is not waited for where the job ends.
  double abort_grace_s = 10;
  double stop_grace_s = 20;  ///< for experiments to end after STOP
  std::optional<std::string> training_command;
  std::vector<std::pair<std::string, std::string>> arg_mappings;
  std::vector<OwnRun> own_runs;          ///< what times and memory are calibrated with
  std::int64_t memory_offset_bytes = 0;  ///< already in the plan
  /// Of a step in the user's training; null where no transformer is trained.
  std::function<Overheads(const Experiment&)> overheads;
  bool sends_ds_config = false;  ///< with every assignment: the workload reads it
  /// For the picture of the winner; none where nothing is planned.
  std::function<std::optional<MemoryTimeline>(const Experiment&)> memory_timeline;
  OutsideMemory* outside_memory = nullptr;      ///< null: processes' memory is not predicted
  OutsideMemory* outside_gpu_memory = nullptr;  ///< likewise of GPUs
  bool devices_have_own_memory = false;         ///< of which none is their processes'
  /// Whether a rank's process is known to be gone; where nobody can tell, patience decides.
  std::function<bool(int world_rank)> is_dead;
  /// How many signals to stop have arrived so far.
  std::function<int()> signals;
};

class Controller {
 public:
  /// keys: the record key of each member of the space. All references outlive it.
  Controller(const PlannedSpace& space, std::vector<std::string> keys, const History& history,
             Tuner& tuner, SlotPool& slots, Mailbox& mailbox, Journal& journal,
             ResultsFolder& results, Progress& progress, ControllerOptions options);

  /// The whole search. Workers are idle afterwards or lost, but not yet told to quit.
  ExitCode run();

  [[nodiscard]] const Scoreboard& board() const { return board_; }
  /// What the search has come to; after run().
  [[nodiscard]] const Answer& answer() const { return answer_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] const std::set<int>& lost_ranks() const { return lost_; }
  /// Whether MPI can be ended in the ordinary way: nobody is lost, and no communicator between
  /// nodes was abandoned, whose peers could still be inside.
  [[nodiscard]] bool can_finalize() const { return lost_.empty() && !abandoned_communicator_; }

 private:
  using Clock = ControllerOptions::Clock;
  struct Attempt {
    std::size_t index = 0;
    std::optional<RepeatKind> repeat;
    int round = 0;
    int try_number = 1;
    Reservation reservation;
    enum class State { building, running, stopping, aborting } state = State::building;
    std::set<int> ready;
    std::set<int> left;            ///< members that said GONE (or OUTCOME)
    std::set<int> without_device;  ///< of these, those that lost theirs
    std::set<int> silent_devices;  ///< … because it does not answer
    Clock::time_point last_sign, give_up_at;
    double timeout_s = 0;  ///< after which it is given up; 0: never
    double rest_s = 0;     ///< that devices may take to come to rest
    double slowest_step_s = 0;
    std::chrono::system_clock::time_point started_at;
    Status status = Status::failed;  ///< of the failure, while aborting
    std::string reason;
    bool is_alone = true;   ///< nothing else has run meanwhile
    bool has_nodes = true;  ///< … on its nodes
    bool has_cause = true;  ///< false: the reason is what a member saw of another's failure
  };

  bool receive();
  void handle(int source, const Message& message);
  void outcome(std::uint64_t number, Attempt& attempt, Measurement measurement);
  void record(std::size_t index, Record record, bool is_known);
  void predict_memory(Record& record);
  [[nodiscard]] bool is_search_over() const;
  void send(int world_rank, const Message& message);
  // What runs next (controller_dispatch.cpp).
  void feed();
  [[nodiscard]] std::size_t most_waiting() const;
  void note_taken(std::size_t index);
  bool adopt(std::size_t index);
  bool dispatch();
  void start(Scheduler::Dispatch next);
  void predict(std::size_t index);
  void send_bar(std::uint64_t number, const Attempt& attempt);
  // Endings that nobody planned (controller_watch.cpp).
  void watch();
  void stop(const std::string& reason);
  void abort(std::uint64_t number, Attempt& attempt, Status status, const std::string& reason);
  void conclude_aborted(std::uint64_t number);
  [[nodiscard]] double overdue_after_s(const Attempt& attempt) const;
  [[nodiscard]] std::optional<int> dead_member(const Attempt& attempt) const;
  // What is written down (controller_publish.cpp).
  bool publish();
  void write_recommendation(const std::optional<Recommendation>& recommendation);
  void write_metrics(std::size_t index);
  void finish();
  // Measuring again (controller_repeats.cpp).
  void repeat_best();
  bool measure_again();
  void submit_again(const RunAgain& again);
  void record_repeat(std::size_t index, Repeat repeat);
  [[nodiscard]] double time_left_s() const;
  [[nodiscard]] RunAgain run_of(std::size_t id) const;

  const PlannedSpace& space_;
  std::vector<std::string> keys_;
  const History& history_;
  Tuner& tuner_;
  Scheduler scheduler_;
  Mailbox& mailbox_;
  Journal& journal_;
  ResultsFolder& results_;
  Progress& progress_;
  ControllerOptions options_;

  Scoreboard board_;
  RunAgainPolicy again_;
  Answer answer_;  ///< of the board as it was when it was written down
  std::map<std::uint64_t, Attempt> running_;
  std::map<std::size_t, int> tries_;            ///< attempts begun, by experiment
  std::map<GroupShape, std::size_t> num_left_;  ///< members that the tuner may still ask for
  std::uint64_t next_attempt_;
  std::set<int> lost_;
  std::vector<RunAgain> repeats_;  ///< that were submitted; their ids go on behind the members'
  std::set<std::size_t> held_;     ///< their metrics.json waits: they may run again
  // What waits for the journal to be durable.
  std::vector<std::pair<int, Message>> outbox_;
  std::vector<std::size_t> dispatched_;
  std::vector<std::size_t> ended_;
  std::uint64_t written_revision_ = 0;  ///< of the answer
  Clock::time_point best_written_at_{};
  Clock::time_point began_;
  Clock::time_point looked_for_dead_at_{};
  std::optional<Clock::time_point> stopping_since_;
  std::string reason_;
  bool short_of_ranks_ = false;
  bool abandoned_communicator_ = false;
  BackgroundWriter writer_;  ///< last: what it writes is above
};

}  // namespace dstune
