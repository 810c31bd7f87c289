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

  /// Whether the steps so far, all that made their update, are warm-up enough.
  [[nodiscard]] bool is_over(const std::vector<double>& step_times_s) const;
};

/// What becomes of a measurement after a timed step.
enum class StoppingDecision { go_on, enough, lost };

class TimingRule {
 public:
  explicit TimingRule(const MeasureOptions& options, const Policy& policy = default_policy());
  /// To be asked after every timed step, with the timed steps so far.
  [[nodiscard]] StoppingDecision decide(const std::vector<double>& timed_s,
                                        const IncumbentEstimate& incumbent);
  /// Whether the last verdict came from a look: at an interval, whose last digits may differ from
  /// machine to machine, or at the race, whose incumbent the leader alone knows. Then the leader's
  /// counts. The same on every rank.
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
