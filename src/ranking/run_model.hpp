#pragma once
/// One model of all runs: what each member's speed is, when runs differ, the machine drifts, and
/// something disturbs a run now and then. docs/inside/measuring.md has the model. Local.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dstune/core/policy.hpp"
#include "dstune/ranking/verdict.hpp"

namespace dstune {

/// One run of a member, be it its first or a later one.
struct ModelledRun {
  std::size_t place = 0;  ///< of its member, in `predicted`
  double at_s = 0;        ///< its middle, of any clock
  double log_speed = 0;   ///< of its mean step: a logarithm, larger is faster
  double error = 0;       ///< standard error that its own steps give it
  bool is_alone = true;   ///< nothing else of the job ran meanwhile
};

struct RunModelOptions {
  int num_draws = default_policy().runs.num_draws;
  std::uint64_t seed = 0;
  const Policy::Runs* policy = &default_policy().runs;
};

/// The beliefs after all runs.
struct RunBeliefs {
  std::vector<double> log_speeds;          ///< of each member, expected
  std::vector<std::vector<double>> draws;  ///< [member][draw] of the joint beliefs
  double run_deviation = 0;                ///< of an undisturbed run from its member's mean
  double drift_deviation = 0;              ///< of what runs near in time share
  double disturbed_runs = 0;               ///< expected number of them
};

/// `predicted`: of each member, the logarithm of its speed. Every member has a run. Draws joint
/// samples by Gibbs' method (Gelman et al., Bayesian Data Analysis, 2013, chapter 11); the same for
/// the same seed. A sweep takes time in proportion to the runs times the members with several.
RunBeliefs believe_runs(const std::vector<ModelledRun>& runs,
                        const std::vector<std::optional<double>>& predicted,
                        const PredictionErrors& errors, const RunModelOptions& options);

}  // namespace dstune
