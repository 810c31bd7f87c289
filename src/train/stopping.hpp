#pragma once
/// When warming up and when timing ends. Pure: every rank decides the same from the same times,
/// but for looks at intervals.

#include <cstddef>
#include <vector>

#include "dstune/core/interval.hpp"
#include "dstune/core/job.hpp"

namespace dstune::train {

struct WarmupRule {
  MeasureOptions options;
  bool has_simulated_times;  ///< exactly the least number of steps
  int min_steps = 0;  ///< what the workload needs before its steps are alike, whatever options say
  const Policy::Measuring* policy = &default_policy().measuring;

  /// Tells whether the steps so far, all that made their update, are warm-up enough.
  [[nodiscard]] bool is_over(const std::vector<double>& step_times_s) const;
};

/// The decision about a measurement after a timed step.
enum class StoppingDecision { go_on, enough, lost };

class TimingRule {
 public:
  explicit TimingRule(const MeasureOptions& options, const Policy& policy = default_policy());
  /// Decides after a timed step, with the timed steps so far. It has to be asked after every one.
  [[nodiscard]] StoppingDecision decide(const std::vector<double>& timed_s,
                                        const IncumbentEstimate& incumbent);
  /// Tells whether the last verdict came from a look: at an interval, or at the race. The
  /// interval's last digits may differ from machine to machine, and the leader alone knows the
  /// race's incumbent. Then the leader's verdict counts. The same on every rank.
  [[nodiscard]] bool has_looked() const { return has_looked_; }

 private:
  const Policy* policy_;
  std::size_t min_steps_;
  double slice_s_;
  double spent_s_ = 0;
  std::size_t next_look_;
  bool has_looked_ = false;
};

}  // namespace dstune::train
