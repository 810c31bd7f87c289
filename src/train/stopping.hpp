#pragma once
/// When warming up and when timing ends. Pure: every rank decides the same from the same times.

#include <cstddef>
#include <vector>

#include "dstune/core/job.hpp"

namespace dstune::train {

class WarmupRule {
 public:
  /// `given_times`: exactly the least number of steps.
  WarmupRule(const MeasureOptions& options, bool given_times)
      : options_(options), given_times_(given_times) {}
  /// Whether the steps so far, all of them, are warm-up enough.
  [[nodiscard]] bool is_over(const std::vector<double>& step_times_s) const;

 private:
  MeasureOptions options_;
  bool given_times_;
};

class TimingRule {
 public:
  explicit TimingRule(const MeasureOptions& options);
  /// To be asked after every timed step, with the timed steps so far.
  [[nodiscard]] bool is_over(const std::vector<double>& timed_s);

 private:
  std::size_t least_steps_;
  double budget_s_;
  double spent_s_ = 0;
  std::size_t next_look_;
};

}  // namespace dstune::train
