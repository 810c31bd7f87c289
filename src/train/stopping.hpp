#pragma once
/// When warming up and when timing ends. Pure: every rank decides the same from the same times,
/// but for looks at intervals.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"

namespace dstune::train {

/// Steps in a row without an update (fp16) after which there is nothing to be measured. A dynamic
/// loss scale from 2^63 down has found its place by then.
inline constexpr int most_skipped_in_a_row = 100;

class WarmupRule {
 public:
  /// `given_times`: exactly the least number of steps. `least_steps`: what the workload needs
  /// before its steps are alike, whatever the options say.
  WarmupRule(const MeasureOptions& options, bool given_times, int least_steps = 0)
      : options_(options),
        least_steps_(std::max({options.start_profile_step, least_steps, 0})),
        given_times_(given_times) {}
  /// Whether the steps so far, all that made their update, are warm-up enough.
  [[nodiscard]] bool is_over(const std::vector<double>& step_times_s) const;

 private:
  MeasureOptions options_;
  int least_steps_;
  bool given_times_;
};

/// What becomes of a measurement after a timed step.
enum class Judgement { go_on, enough, lost };

class TimingRule {
 public:
  explicit TimingRule(const MeasureOptions& options);
  /// To be asked after every timed step, with the timed steps so far.
  [[nodiscard]] Judgement judge(const std::vector<double>& timed_s, const RaceBar& bar);
  /// Whether the last verdict came from a look: at an interval, whose last digits may differ from
  /// machine to machine, or at the race, whose bar the leader alone knows. Then the leader's
  /// counts. The same on every rank.
  [[nodiscard]] bool has_looked() const { return has_looked_; }

 private:
  std::size_t least_steps_;
  double budget_s_;
  double spent_s_ = 0;
  std::size_t next_look_;
  bool has_looked_ = false;
};

}  // namespace dstune::train
