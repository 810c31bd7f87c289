#pragma once
/// The agenda says what runs next. First come, alone, the members that may have killed the last
/// jobs. Then come the members that the tuner asks for, unless the journal knows them. Members that
/// lost a rank run once more, and so do those that the policy repeats: finalists that stay built
/// take turns in one run of all of them. It knows no clock. Local.

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/built_finalists.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "dstune/report/journal.hpp"
#include "dstune/schedule/scheduler.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {

/// A search's inputs and its scoreboard. All of it outlives the search.
struct Search {
  const PlannedSpace& space;
  const std::vector<std::string>& keys;  ///< the record key of each member of the space
  const History& history;
  Scoreboard& scoreboard;  ///< with what the history knows beside first runs
  RunAgainPolicy& run_again;
  Tuner& tuner;
  SlotPool& slots;
  bool races = false;  ///< challengers are stopped where they have lost to the best so far
  /// An earlier job has ended this search: nothing new is measured. A tuner's beliefs depend on the
  /// order in which it heard, so that it might go on for a little.
  bool is_complete = false;
  /// The bytes of a rank that finalists may take that stay built; nothing: none does.
  std::optional<RankBytes> built_bytes{};
};

/// A member that takes turns with others in their run.
struct Turn {
  std::size_t member = 0;
  int round = 0;
};

/// A run of a member of the space.
struct Run {
  std::size_t member = 0;
  std::optional<RepeatKind> repeat{};  ///< nothing: its first one, or the one in place of that
  int round = 0;                       ///< of the repeat
  int try_number = 1;                  ///< of a first run
  bool is_risky = false;               ///< an earlier try lost a rank, its device, or the job
  bool stays_built = false;            ///< after it, as do the others
  double slice_share = 1;              ///< it is timed for this share of what a first run is
  std::vector<Turn> others{};          ///< that take turns with it, in the order of the first ones
};

/// The members of a run, the first one's before those that take turns with it.
[[nodiscard]] std::vector<Turn> turns_of(const Run& run);

class Agenda {
 public:
  /// Takes in a result that needs no run; `is_known`: the journal has it already, and when it was
  /// measured.
  using Take = std::function<void(std::size_t member, Record record, bool is_known)>;

  Agenda(Search search, Take take);

  /// Members whose results an earlier job has left.
  [[nodiscard]] std::size_t num_known() const { return known_.size(); }
  /// All of these count from the beginning: a tuner that learns might not ask for them again.
  void take_known();
  /// Asks the tuner, and in a search that goes on the policy; nobody while suspects run. `is_idle`:
  /// nothing runs; `is_measuring`: some first run does.
  void fill(double time_left_s, bool is_idle, bool is_measuring);
  /// All that was asked for has ended. Adds what is to be run once more, one run at a time, so that
  /// it is alone; false where nothing is left.
  bool fill_again(double time_left_s);
  /// While finalists take turns: decides what follows, if it is likely to be wanted whatever comes
  /// of them, so that no rank waits for it.
  void look_ahead(double time_left_s);
  /// A run of finalists that stay built ended before its time: what was to follow is asked for
  /// anew.
  void forget_rounds();
  /// The member took more memory than was planned beside others that stay built: it runs next, and
  /// nothing stays built any more.
  void rebuild(const Turn& turn);
  /// Tells whether the finalist's steps are to stay built now.
  [[nodiscard]] bool stays_built(std::size_t member) const { return built_.stays(member); }
  /// The next run for which there is room now.
  struct Next {
    Run run;
    Reservation reservation;
  };
  std::optional<Next> next();
  /// A first run lost ranks. Returns whether it is tried once more, before all others.
  bool try_again(const Run& run);
  /// Nothing more is started.
  void clear() {
    scheduler_.clear();
    rounds_.clear();
  }

  [[nodiscard]] std::size_t num_waiting() const { return scheduler_.num_waiting(); }
  [[nodiscard]] bool is_empty() const { return num_waiting() == 0; }
  [[nodiscard]] bool is_search_over() const {
    return search_.is_complete || search_.tuner.is_done();
  }
  /// Tells whether something could not be run for want of ranks.
  [[nodiscard]] bool is_short_of_ranks() const { return is_short_of_ranks_; }

 private:
  bool take_without_run(std::size_t member);
  void note_asked_for(std::size_t member);
  [[nodiscard]] int num_deaths(std::size_t member) const;
  [[nodiscard]] bool is_blamed(std::size_t member) const;
  [[nodiscard]] bool is_suspect(std::size_t member) const;
  bool try_suspects(bool is_idle);
  bool try_failed_again(bool is_idle);
  [[nodiscard]] std::size_t max_waiting(bool is_idle) const;
  void submit(const RunAgain& again);
  /// Runs that are made again at once, on the same ranks.
  struct Round {
    std::vector<RunAgain> runs;
    bool stays_built = false;
  };
  void plan_rounds(const std::vector<RunAgain>& runs);
  [[nodiscard]] bool may_stay(const RunAgain& run) const;
  [[nodiscard]] bool may_share(const RunAgain& run) const;
  bool submit_next_round();
  void give_up_impossible();
  [[nodiscard]] Needs needs(std::size_t member) const;
  [[nodiscard]] Run run_of(std::size_t id) const;

  Search search_;
  Take take_;
  Scheduler scheduler_;
  std::vector<std::size_t> known_;
  std::deque<std::size_t> suspects_;  ///< members that are to run alone, before all others
  bool is_suspect_out_ = false;       ///< one of them waits or runs
  std::vector<std::size_t> retried_;  ///< members that failed before, next
  bool are_retried_out_ = false;      ///< some of them wait or run
  std::vector<Round> repeats_;        ///< that were submitted; their ids go on behind the members'
  std::deque<Round> rounds_;          ///< of the finals, that are not submitted yet
  BuiltFinalists built_;
  std::set<std::size_t>
      told_rebuilt_;  ///< finalists of which it was said that they do not stay built
  std::map<std::size_t, int> tries_;            ///< begun, by member
  std::map<GroupShape, std::size_t> num_left_;  ///< members that the tuner may still ask for
  bool is_short_of_ranks_ = false;
  std::size_t num_notes_told_ = 0;  ///< of the tuner's
};

}  // namespace dstune
