#pragma once
/// When warming up and when timing ends. Pure: every rank decides the same from the same times,
/// but for looks at intervals.

#include <cstddef>
#include <vector>

#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"
#include "dstune/train/workload.hpp"

namespace dstune::train {

class WarmupRule {
 public:
  WarmupRule(const MeasureOptions& options, const WorkloadTraits& traits, const WarmupNeed& need,
             const Policy::Measuring& policy = default_policy().measuring);
  /// The rule of a workload that has run before and stayed built.
  explicit WarmupRule(const KeptRun& kept,
                      const Policy::Measuring& policy = default_policy().measuring);

  /// Tells whether the steps so far, all that made their update, are warm-up enough.
  [[nodiscard]] bool is_over(const std::vector<double>& step_times_s) const;

 private:
  std::size_t least_;
  bool is_watched_;
  std::size_t usual_ = 0;  ///< steps after which a slice's time matters
  double longest_s_ = 0;
  const Policy::Measuring* policy_;
};

/// The first of a run's steps that were longer than those that were timed, without a gap: what this
/// process needs the next time. At least 1.
[[nodiscard]] int steps_until_settled(const std::vector<double>& warmup_s,
                                      const std::vector<double>& timed_s,
                                      const Policy::Measuring& policy = default_policy().measuring);

/// The decision about a measurement after a timed step.
enum class StoppingDecision { go_on, enough, lost };

class TimingRule {
 public:
  explicit TimingRule(const MeasureOptions& options, const WorkloadTraits& traits = {},
                      const Policy& policy = default_policy());
  /// Decides after a timed step, with the timed steps so far. It has to be asked after every one.
  [[nodiscard]] StoppingDecision decide(const std::vector<double>& timed_s,
                                        const IncumbentEstimate& incumbent);
  /// Tells whether the incumbent counts after so many timed steps.
  [[nodiscard]] bool is_race_look(std::size_t timed_steps) const;
  /// Tells whether the last verdict came from a look: at an interval, or at the race. The
  /// interval's last digits may differ from machine to machine, and the leader alone knows the
  /// race's incumbent. Then the leader's verdict counts. The same on every rank.
  [[nodiscard]] bool has_looked() const { return has_looked_; }

 private:
  const Policy* policy_;
  bool is_raced_early_;
  std::size_t min_steps_;
  double slice_s_;
  double spent_s_ = 0;
  std::size_t next_look_;
  bool has_looked_ = false;
};

}  // namespace dstune::train
