#pragma once
/// The attempts under way, as a state machine without input or output: messages of workers and the
/// time come in; messages to workers and events for the driver come out. It knows no mailbox, no
/// clock and no journal. Whoever drives it tells it all of these: in the job that is AttemptDriver.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dstune/comm/mailbox.hpp"
#include "dstune/tune/protocol.hpp"
#include "watch/waiting.hpp"

namespace dstune {

class Attempts {
 public:
  using Number = std::uint64_t;
  using WallTime = std::chrono::system_clock::time_point;

  /// How long an attempt may take before it is aborted, and how long the abort may take. 0: any
  /// time.
  struct Limits {
    double inactivity_timeout_s = 0;  ///< of silence; twenty of its steps, where these are longer
    double timeout_s = 0;             ///< in all
    std::string overdue{};            ///< the reason that is given after that
    double abort_grace_s = 10;        ///< for members to answer ABORT before they count as lost
    double drain_timeout_s = 0;  ///< more of it, for their devices to drain; not where the job ends
  };
  struct Options {
    double stop_grace_s = 20;  ///< for attempts to end after STOP
    /// Tells whether ranks of the one group are on nodes of the other; empty: never.
    std::function<bool(const std::vector<int>&, const std::vector<int>&)> share_a_node{};
  };

  /// The leader's PROGRESS.
  struct Stepped {
    Number attempt = 0;
    int steps = 0;
  };
  /// A member's measurements of the machine. The attempt ends once all members have told theirs.
  struct Profiled {
    Number attempt = 0;
    int world_rank = 0;
    message::Profiled answer;
  };
  /// A member's words: of the first that left, and of each that failed by itself.
  struct Failed {
    Number attempt = 0;
    std::string reason;
  };
  /// The last that is heard of an attempt.
  struct Ended {
    Number attempt = 0;
    Measurement measurement{};  ///< the leader's, or a failure with its reason and ranks
    /// When GO was sent and the end was heard of; the same where GO never was.
    WallTime started_at{}, finished_at{};
    bool is_alone = true;       ///< no other ran meanwhile
    bool is_aborted = false;    ///< members were told to leave
    bool is_given_up = false;   ///< … by limits, deaths or orders, and not since a member failed
    bool is_cut_short = false;  ///< by stop(), so that it says nothing of the experiment
    std::vector<int> lost{};    ///< members that did not answer
    std::vector<int> unusable{};       ///< these and those with a loss, ascending
    bool is_of_script = false;         ///< … since its code does not give Python back
    std::string details{};             ///< of the failure, for people: lines
    std::vector<std::string> notes{};  ///< what the user is to be told of it
    // For several that take turns:
    std::vector<Measurement> others{};  ///< in the order in which ASSIGN has them
    /// When each of them began and ended, the first one before the others.
    std::vector<std::pair<WallTime, WallTime>> spans{};
    int turn = 0;  ///< whose it was at last, as far as was heard: 0 the first one's
  };
  using Event = std::variant<Stepped, Profiled, Failed, Ended>;
  struct Outgoing {
    int world_rank = 0;
    Message message;
  };

  explicit Attempts(Options options) : options_(std::move(options)) {}

  /// Orders the members to take part, by message::Assign or Profile; the attempt's number and the
  /// time after which members give up by themselves are filled in. Returns the number.
  template <class Order>
  Number begin(Order order, const Limits& limits, Moment now);
  /// Tells the leader what it is raced against.
  void race(Number attempt, const IncumbentEstimate& incumbent);
  /// These ranks give back what stays built of this experiment; of all where it has no name.
  void release(const std::vector<int>& world_ranks, const std::string& experiment = {});
  /// Takes a message in, unless its attempt has ended.
  void on(int source, Message message, Moment now);
  /// The rank is known to be lost, and `how` ("died"): nobody waits for its answer.
  void died(int world_rank, const std::string& how = "died");
  /// Looks at every limit; to be called often.
  void tick(Moment now);
  /// The job ends: what is measured ends after its step, the rest is aborted.
  void stop(Moment now);
  /// Aborts all that is under way.
  void abort(Moment now);

  /// These return what is to be sent, and what has happened, since it was taken last.
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }
  /// The same of GO alone. It follows from nothing that was recorded since the order.
  std::vector<Outgoing> take_go() {
    const auto first = std::stable_partition(
        outgoing_.begin(), outgoing_.end(),
        [](const Outgoing& one) { return !std::holds_alternative<message::Go>(one.message); });
    std::vector<Outgoing> orders(std::make_move_iterator(first),
                                 std::make_move_iterator(outgoing_.end()));
    outgoing_.erase(first, outgoing_.end());
    return orders;
  }
  std::vector<Event> take_events() { return std::exchange(events_, {}); }

  /// Members' choices of libraries' candidates since they were taken last. The first to tell
  /// decides for all that take part in what begins from then on.
  kernels::CudaChoices take_new_choices() { return std::exchange(new_choices_, {}); }

  [[nodiscard]] bool is_empty() const { return under_way_.empty(); }
  /// Tells whether it has been sent GO and goes on.
  [[nodiscard]] bool has_started(Number attempt) const {
    const auto found = under_way_.find(attempt);
    return found != under_way_.end() && found->second.started_at;
  }
  /// Tells whether steps may be timed now on one of these ranks: its group has been sent GO.
  [[nodiscard]] bool is_timing(const std::set<int>& ranks) const;
  /// Ranks that an answer may come from.
  [[nodiscard]] std::set<int> awaited_ranks() const;
  /// Members that never answered an ABORT, and whoever died, idle or not.
  [[nodiscard]] const std::set<int>& lost_ranks() const { return lost_; }

 private:
  using Time = SteadyClock::time_point;
  struct Attempt {
    std::vector<int> members;  ///< ascending; the first is the leader
    Limits limits;
    enum class State { building, running, stopping, aborting } state = State::building;
    Time began, last_sign;
    std::optional<WallTime> started_at;
    double slowest_step_s = 0;
    int turn = 0;
    std::vector<std::string> notes;  ///< of members that have left
    std::set<int> ready;
    std::set<int> left;  ///< have answered for the last time
    /// Members that have left and can not be used any more.
    std::map<message::Loss, std::set<int>> losses;
    bool has_gone_members = false;
    bool is_alone = true;
    bool has_nodes = true;  ///< … on its nodes
    // While it is aborted:
    bool is_given_up = false;
    Time give_up_at;
    Status status = Status::failed;
    std::string reason;
    std::string details;
    bool has_cause = true;  ///< false: the reason is what a member saw of another's failure
  };
  struct Failure {
    Status status = Status::failed;
    std::string reason;
  };

  void note_neighbours(Attempt& attempt);
  void note_choices(const kernels::CudaChoices& choices);
  void send(int world_rank, Message message);

  void on_ready(Number number, Attempt& attempt, int source, Moment now);
  void on_outcome(Number number, Attempt& attempt, message::Outcome outcome, Moment now);
  void on_profiled(Number number, Attempt& attempt, int source, message::Profiled answer,
                   Moment now);
  void on_gone(Number number, Attempt& attempt, int source, const message::Gone& gone, Moment now);

  [[nodiscard]] std::string death_in(const Attempt& attempt) const;
  [[nodiscard]] std::optional<Failure> failure_of(const Attempt& attempt, Time now) const;
  void begin_abort(Number number, Attempt& attempt, const Failure& failure, Time now);
  void conclude(Number number, Moment now);
  [[nodiscard]] std::string reason_of(const Attempt& attempt) const;
  [[nodiscard]] bool is_answered(const Attempt& attempt) const;
  /// Takes it out, and fills in what is known of every end.
  void end(Number number, Ended ended, Moment now);

  Options options_;
  std::map<Number, Attempt> under_way_;
  Number next_ = 1;
  std::map<int, std::string> dead_;  ///< and how
  std::set<int> lost_;
  std::optional<Time> stopping_since_;
  std::vector<Outgoing> outgoing_;
  std::vector<Event> events_;
  kernels::CudaChoices choices_, new_choices_;
};

/// Drives the attempts under way: brings them the workers' messages, the time and the deaths of
/// processes, and sends what they want said. Rank 0 only; one thread.
class AttemptDriver {
 public:
  /// Ranks that are known to be lost, and how: "died".
  using LostRanks = std::function<std::map<int, std::string>()>;

  /// `lost_ranks` is empty where nobody can tell. The mailbox outlives it.
  AttemptDriver(Mailbox& mailbox, Attempts::Options options, LostRanks lost_ranks = {},
                JobClock clock = Moment::now)
      : attempts_(std::move(options)),
        mailbox_(mailbox),
        lost_ranks_(std::move(lost_ranks)),
        clock_(std::move(clock)) {}

  /// Who keeps what libraries' candidates are chosen; called from listen().
  void set_choice_keeper(std::function<void(const kernels::CudaChoices&)> keep) {
    keep_choices_ = std::move(keep);
  }

  [[nodiscard]] Attempts& attempts() { return attempts_; }
  [[nodiscard]] Moment now() const { return clock_(); }

  /// Takes in what has arrived and who died, and looks at the limits. Returns whether anything but
  /// PROGRESS was heard. More PROGRESS follows and can wait; attention would cost the rank beside.
  bool listen() {
    bool has_heard = false;
    while (auto received = mailbox_.try_receive()) {
      Message message = decode(received->data);
      has_heard |= !std::holds_alternative<message::Progress>(message);
      attempts_.on(received->source, std::move(message), now());
    }
    check_liveness();
    attempts_.tick(now());
    const kernels::CudaChoices choices = attempts_.take_new_choices();
    if (keep_choices_ && !choices.empty()) keep_choices_(choices);
    return has_heard;
  }

  /// Sends what is to be sent. Returns whether there was anything.
  bool speak() { return send(attempts_.take_outgoing()); }
  /// Sends what need not wait until the records of this round are durable.
  bool speak_ahead() { return send(attempts_.take_go()); }

 private:
  static constexpr std::chrono::milliseconds dead_interval{200};

  bool send(const std::vector<Attempts::Outgoing>& outgoing) {
    const Message* said = nullptr;
    Bytes bytes;
    for (const auto& [world_rank, message] : outgoing) {
      if (said == nullptr || !are_one_order(*said, message)) bytes = encode(message);
      said = &message;
      mailbox_.send(world_rank, bytes);
    }
    return !outgoing.empty();
  }

  /// All members of an attempt get the same order: its text is made once.
  static bool are_one_order(const Message& one, const Message& other) {
    const auto* first = std::get_if<message::Assign>(&one);
    const auto* second = std::get_if<message::Assign>(&other);
    return first != nullptr && second != nullptr && first->attempt == second->attempt;
  }

  void check_liveness() {
    const auto now = clock_().steady;
    if (!lost_ranks_ || now - liveness_checked_at_ <= dead_interval) return;
    liveness_checked_at_ = now;
    for (const auto& [rank, how] : lost_ranks_()) attempts_.died(rank, how);
  }

  Attempts attempts_;
  Mailbox& mailbox_;
  LostRanks lost_ranks_;
  JobClock clock_;
  std::function<void(const kernels::CudaChoices&)> keep_choices_;
  SteadyClock::time_point liveness_checked_at_{};
};

}  // namespace dstune
