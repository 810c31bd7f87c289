#pragma once
/// What is measured once more: the best one during the search, to see how much runs differ; what
/// was raced out beside a neighbour; the finalists, alone and in turns. docs/measuring.md has the
/// rules. Knows no clock: who asks says how much time is left. Local.

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

inline constexpr std::size_t max_finalists = 3;
/// Of the best finalist; another one that is clearly no better leaves after the second.
inline constexpr int final_rounds = 3;
/// With fewer whole rounds nothing is decided anew.
inline constexpr int min_final_rounds = 2;
/// Of those that are not told apart by then.
inline constexpr int max_final_rounds = 6;

/// The best row by its first run, and at most two others whose intervals, widened by the run-to-run
/// spread, overlap its own; best first. Empty where nothing gave a result. Before the finals are
/// done.
[[nodiscard]] std::vector<std::size_t> finalists(const Scoreboard& board);

/// A run that is to be made.
struct RunAgain {
  std::size_t row = 0;
  /// Nothing: its first run, which was raced out beside a neighbour.
  std::optional<RepeatKind> kind{};
  int round = 0;                     ///< of its kind
  std::vector<int> avoided_ranks{};  ///< another placement tells more
};

/// The next final run of the finalists after those that the rows have; nothing once it is clear
/// which one is the best, or not worth more runs.
[[nodiscard]] std::optional<RunAgain> next_final_run(const Scoreboard& board);

/// Decides what is run again, and keeps the finals on the scoreboard.
class RunAgainPolicy {
 public:
  struct Options {
    bool races = false;              ///< challengers are stopped where they have lost to the best
    bool repeats_best = false;       ///< during the search
    bool is_alone_in_space = false;  ///< no other member was to be measured
    /// By row: jobs that died while it was repeated.
    std::map<std::size_t, int> deaths{};
  };
  /// The scoreboard outlives it.
  RunAgainPolicy(Scoreboard& board, Options options);

  /// While the tuner goes on; each answer counts as a run that was begun.
  std::optional<RunAgain> during_search(double time_left_s);
  /// When all that the tuner wanted has ended and nothing runs, so that it is alone; nothing where
  /// nothing is left.
  std::optional<RunAgain> after_search(double time_left_s);
  /// Whether after_search() said so of a row that was raced out: it is measured fully then.
  [[nodiscard]] bool is_rerun(std::size_t row) const { return reruns_.contains(row); }

 private:
  std::optional<RunAgain> next_rerun(double time_left_s);
  std::optional<RunAgain> next_in_finals(double time_left_s);
  [[nodiscard]] std::string no_finals_reason() const;
  [[nodiscard]] double duration_s(std::size_t row) const;

  Scoreboard& board_;
  Options options_;
  std::map<std::size_t, int> spread_runs_;  ///< by row, those that wait too
  std::set<std::size_t> reruns_;            ///< were raced out beside a neighbour
};

}  // namespace dstune
