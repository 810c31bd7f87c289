#pragma once
/// Estimates how long the search and its finals still take: by the runs that ended so far, and by
/// how many more the tuner and the finals are expected to ask for. It knows no clock. Local.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/expected_runs.hpp"
#include "dstune/report/job_state.hpp"

namespace dstune {

/// A first run's share of a second is that of the ranks' time: its duration over the number of such
/// runs that the ranks have room for at once.
class TimeEstimate {
 public:
  /// A member that may run.
  struct Member {
    int num_at_once = 0;  ///< members like it that the ranks have room for; 0: it never runs
    double predicted_step_s = 0;  ///< 0: nobody knows
  };
  /// By the number of the member in the space.
  explicit TimeEstimate(std::vector<Member> members);

  enum class Kind { first, again, final };
  /// Seconds are from any moment on, the same for all. `run`: its number until it ends. `turns`:
  /// members that take turns in it.
  void started(std::uint64_t run, std::size_t member, Kind kind, double at_s,
               std::size_t turns = 1);
  /// `is_full`: it was measured to its end.
  void ended(std::uint64_t run, double at_s, bool is_full);
  /// Its result was known without a run.
  void known(std::size_t member) { leave(member); }

  /// Runs that others expect by now, beside those that were begun.
  struct Expected {
    std::optional<ExpectedRuns> first_runs{};  ///< nothing: nobody can say
    ExpectedRuns finals{};
    double final_s = 0;                                            ///< how long one of these takes
    double time_left_s = std::numeric_limits<double>::infinity();  ///< nothing is begun after it
  };
  /// Nothing where nothing is expected of first runs, or none has ended yet.
  [[nodiscard]] std::optional<TimeLeft> left(const Expected& expected, double now_s) const;

  /// How long the search takes without its finals, from its beginning to its end, if so many first
  /// runs are left. 0: not known.
  [[nodiscard]] double search_s(const ExpectedRuns& first_runs, double now_s) const;

 private:
  struct Running {
    std::size_t member = 0;
    Kind kind{};
    double began_s = 0;
    std::size_t turns = 1;
  };
  /// First runs of members that the ranks have as much room for.
  struct Likes {
    double num_left = 0, predicted_left_s = 0;  ///< members that were not begun
    double num_ended = 0, sum_s = 0, predicted_sum_s = 0;
  };
  struct Range {
    double likely = 0, low = 0, high = 0;
  };

  void leave(std::size_t member);
  [[nodiscard]] double usual_s(int num_at_once) const;
  [[nodiscard]] double slope() const;
  [[nodiscard]] double stretch(double now_s) const;
  [[nodiscard]] double share_of_rest() const;
  [[nodiscard]] double share_of_choices() const;
  [[nodiscard]] Range of_first_runs(const ExpectedRuns& runs, double now_s) const;
  [[nodiscard]] Range of_finals(const Expected& expected, double now_s) const;
  [[nodiscard]] std::string assumes(const Expected& expected) const;

  std::vector<Member> members_;
  std::vector<bool> is_left_;
  std::map<int, Likes> likes_;  ///< by num_at_once
  std::map<std::uint64_t, Running> running_;
  struct Ended {
    int num_at_once = 0;
    double duration_s = 0, predicted_s = 0;
    bool is_full = false;
  };
  std::vector<Ended> ended_;  ///< first runs
  double num_finals_ = 0;     ///< that ended
  std::optional<double> began_s_, search_ended_s_, finals_began_s_;
  double finals_ended_s_ = 0;
};

}  // namespace dstune
