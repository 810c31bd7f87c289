#pragma once
/// Decides on further runs. The best one runs again during the search, to see how much runs differ.
/// Members that were raced out beside a neighbour run again. The finalists do so alone and in
/// turns, as long as the best one is in doubt. docs/inside/measuring.md has the rules. Knows no
/// clock: who asks says how much time is left. Local.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dstune/core/expected_runs.hpp"
#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

/// Rounds of finals that are run in any case, where it is in doubt which one is the best.
struct FinalRounds {
  int count = default_policy().repeating.rounds;
  /// Long runs have fewer rounds: no more is begun after so long.
  double longest_s = default_policy().repeating.rounds_s;
};
/// … where forecasts of the built-in step make the engine's searches short; its runs differ more.
[[nodiscard]] inline FinalRounds final_rounds_beside(
    const Policy::Repeating& policy = default_policy().repeating) {
  return {policy.rounds_of_engine, policy.longest_finals_s};
}

/// A run that is to be made.
struct RunAgain {
  std::size_t member = 0;
  /// Nothing: its first run, which was raced out beside a neighbour.
  std::optional<RepeatKind> kind{};
  int round = 0;                     ///< of its kind
  std::vector<int> avoided_ranks{};  ///< another placement tells more
  double slice_share = 1;            ///< it is timed for this share of what a first run is
};

/// Tells whether all runs so far leave no doubt: the answer is within 1 % of the best with a chance
/// of 95 %. It goes by the last verdict.
[[nodiscard]] bool is_settled(const Scoreboard& scoreboard);
/// The members that may be the best by the last verdict, the two likeliest ones in any case, and
/// the answer; the likeliest first.
[[nodiscard]] std::vector<std::size_t> contenders(const Scoreboard& scoreboard);

/// Decides what is run again, and keeps the finals on the scoreboard. Finals are asked for run by
/// run, where each finalist is built for its run, or round by round, where finalists stay built and
/// take turns step by step. Both may be mixed.
class RunAgainPolicy {
 public:
  struct Options {
    bool races = false;         ///< challengers are stopped where they have lost to the best
    bool repeats_best = false;  ///< during the search
    /// Also during it: short runs of a member show whether the machine is as fast as before.
    bool has_controls = false;
    bool is_alone_in_space = false;  ///< no other member was to be measured
    bool is_complete = false;        ///< an earlier job has ended the search: nothing more is run
    FinalRounds rounds{};
    /// Jobs that died while a member was repeated, by member.
    std::map<std::size_t, int> deaths{};
  };
  /// The scoreboard outlives it.
  RunAgainPolicy(Scoreboard& scoreboard, Options options);

  /// While the tuner goes on; each answer counts as a run that was begun.
  std::optional<RunAgain> during_search(double time_left_s);
  /// When all that the tuner wanted has ended and nothing runs, so that it is alone; nothing where
  /// nothing is left.
  std::optional<RunAgain> after_search(double time_left_s);
  /// … a whole round at a time: all runs of it, in the order in which they first take turns. Rounds
  /// go back and forth, A B C and C B A. A member that was raced out beside a neighbour comes alone
  /// first, without a kind. Empty: no round is wanted by what is known.
  ///
  /// It may be asked for the next round before the last one has ended. Then a round comes only if
  /// that one will hardly settle it, and finals do not end yet. Who got nothing asks again when all
  /// has ended.
  std::vector<RunAgain> next_round(double time_left_s);
  /// The runs of next_round() that have no repeat on the scoreboard will not come any more.
  void withdraw_rounds();
  /// Finalists whose runs next_round() has asked for and that have no repeat on the scoreboard yet.
  [[nodiscard]] std::vector<std::size_t> under_way() const;
  /// How many runs of finals after_search() will still ask for, beside those that were begun.
  /// `search_s`: how long the search takes without them.
  [[nodiscard]] ExpectedRuns expected_finals(double search_s) const;
  /// Seconds that a run of the finals takes, by the first runs of the best. 0: not known.
  [[nodiscard]] double usual_final_s() const;
  /// Tells whether after_search() returned it as a member that was raced out: it is measured fully
  /// then.
  [[nodiscard]] bool is_rerun(std::size_t member) const { return reruns_.contains(member); }

 private:
  std::optional<RunAgain> next_control(double time_left_s);
  std::size_t member_of_control();
  bool end_if_complete();
  void forget_if_more_ended();
  std::optional<RunAgain> next_rerun(double time_left_s);
  std::optional<RunAgain> next_in_finals(double time_left_s);
  [[nodiscard]] bool have_finals_ended() const;
  [[nodiscard]] bool has_begun() const;
  [[nodiscard]] bool is_settled_by_finals() const;
  [[nodiscard]] bool is_next_round_likely() const;
  /// Rounds that a member was run in or is under way in.
  [[nodiscard]] int rounds_of(std::size_t member) const;
  /// Finalists of the next round, the likeliest first, on the scoreboard now; empty where none is
  /// left, or finals are given up.
  std::vector<std::size_t> choose_finalists();
  void end_without_time(double needed_s);
  [[nodiscard]] std::vector<std::size_t> in_turn(std::vector<std::size_t> finalists) const;
  [[nodiscard]] std::string no_finals_reason(const std::vector<std::size_t>& finalists) const;
  /// How long first runs and those during the search went on.
  [[nodiscard]] static double search_s(const Scoreboard& scoreboard);
  [[nodiscard]] bool is_time_over();
  [[nodiscard]] double duration_s(std::size_t member) const;

  Scoreboard& scoreboard_;
  Options options_;
  std::map<std::size_t, int> spread_runs_;   ///< by member, those that wait too
  std::set<std::size_t> reruns_;             ///< were raced out beside a neighbour, or under a load
  std::uint64_t first_runs_at_control_ = 0;  ///< that had ended when the last one was asked for
  std::uint64_t first_runs_between_;         ///< two controls, where the load is not in doubt
  std::optional<std::size_t> member_of_controls_{};
  double controls_s_ = 0;               ///< that they take, as expected
  std::vector<std::size_t> turns_;      ///< of this round, the next one last
  std::uint64_t known_first_runs_ = 0;  ///< that ended before the next two were found
  /// Members that were raced out beside others, with their values here.
  std::optional<std::vector<std::pair<std::size_t, MetricValue>>> raced_out_;
  std::optional<double> search_s_;  ///< how long first runs went on
  std::map<std::size_t, int>
      asked_rounds_;  ///< by member, the last one that next_round() asked for
};

}  // namespace dstune
