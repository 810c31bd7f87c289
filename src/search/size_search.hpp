#pragma once
/// DeepSpeed's search for the micro-batch of one configuration, on sizes that fit by the plan. It
/// looks for the largest that runs or still pays, by steps up, and by bisection if one does not
/// run. Then it tries some sizes between half of that and it, and finer ones around the best of
/// them. If nothing is planned, sizes double until one does not run, or brings too little. Local.

#include <cstdint>
#include <optional>
#include <vector>

#include "dstune/core/policy.hpp"

namespace dstune {

/// The largest of rising sizes that is at most `factor` times as large as the one at a place, or
/// else the next one; nothing where there is none.
[[nodiscard]] std::optional<std::size_t> step_up(const std::vector<std::int64_t>& sizes,
                                                 std::size_t place, std::int64_t factor);

class SizeSearch {
 public:
  /// `sizes` rise, at least one. `start`: the place of a size that is likely to run, from which the
  /// search starts instead of the smallest. `grows`: nothing is planned of them.
  SizeSearch(std::vector<std::int64_t> sizes, int num_to_try, std::size_t start, bool grows = false,
             const Policy::Sizes& policy = default_policy().sizes);

  /// The place of a size to run now; nothing where the search is done or waits for what is running.
  std::optional<std::size_t> next();
  /// How one ended, in any order: larger is better; nothing where it did not run.
  void observe(std::size_t place, std::optional<double> score);
  /// One that has ended has another score by now; nothing where it has not. Choices that were made
  /// stay.
  void revise(std::size_t place, std::optional<double> score);
  /// It is known by now that sizes from this one on do not run. Those that run stay.
  void refuse_from(std::size_t place);
  [[nodiscard]] bool is_done() const { return phase_ == Phase::done; }

  /// The best that ran.
  [[nodiscard]] std::optional<std::size_t> best() const;
  /// The largest that ran.
  [[nodiscard]] std::optional<std::size_t> largest() const;
  /// Above the largest that ran, the smallest that did not, or is known not to: larger ones were
  /// not tried.
  [[nodiscard]] std::optional<std::size_t> smallest_failed() const;
  /// Sizes that are worth trying with other configurations like this one: the best and its
  /// challengers.
  [[nodiscard]] const std::vector<std::size_t>& sizes_to_try() const { return sizes_to_try_; }

 private:
  enum class Phase { largest, coarse, fine, done };
  struct Trial {
    bool is_running = false, is_over = false;
    std::optional<double> score;
  };

  [[nodiscard]] bool is_untried(std::size_t place) const;
  [[nodiscard]] bool is_any_running() const;
  std::optional<std::size_t> take(std::size_t place);
  std::optional<std::size_t> next_probe();
  /// Goes on to the next phase where this one has its answer.
  void advance();
  [[nodiscard]] bool is_largest_known() const;
  [[nodiscard]] bool is_on_plateau() const;
  void choose_sizes();
  [[nodiscard]] std::vector<std::size_t> beside_best() const;

  std::vector<std::int64_t> sizes_;
  int num_to_try_;
  std::size_t start_;
  bool grows_;
  const Policy::Sizes* policy_;
  Phase phase_ = Phase::largest;
  std::vector<Trial> trials_;        ///< of each size
  std::vector<std::size_t> wanted_;  ///< of this phase
  std::vector<std::size_t> sizes_to_try_;
  std::size_t best_before_ = 0;  ///< this round of the fine search: its place
};

}  // namespace dstune
