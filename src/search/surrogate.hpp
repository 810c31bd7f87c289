#pragma once
/// Predicts the values of members that were not measured from those that were. Local.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dstune/core/policy.hpp"
#include "features.hpp"

namespace dstune {

struct Sample {
  std::size_t point = 0;
  double value = 0;
  double noise = 0;  ///< standard deviation
};

/// A normal distribution, or Student's t of four degrees of freedom with this scale.
struct Posterior {
  double mean = 0;
  double deviation = 0;
  bool has_heavy_tails = false;
};

/// How far what was measured is from what was believed of it, in units of the deviation: says how
/// much beliefs are worth.
class TrackRecord {
 public:
  /// `may_narrow`: errors smaller than believed make beliefs narrower.
  explicit TrackRecord(const Policy::Surrogate& policy = default_policy().surrogate,
                       bool may_narrow = true)
      : policy_(&policy), narrowest_(may_narrow ? policy.narrowest : 1) {}
  /// An experiment has ended, of which this was believed before; errors of it are in its deviation.
  void note(double error);
  /// The factor by which deviations are to be multiplied.
  [[nodiscard]] double scale() const;
  /// An error was larger than a normal distribution lets expect.
  [[nodiscard]] bool has_heavy_tails() const;
  /// Tells whether the last eight errors, widened as they were known to be, were no larger than
  /// they should be. If tails are heavy, each counts as the normal number that is as rare.
  [[nodiscard]] bool holds() const;
  /// The chance that something is better for a reason that no belief knows of. The next error is
  /// unlike all that were seen with the probability 1 / (errors + 2), by the rule of succession
  /// (Laplace). One in four of such errors is for the better, and by enough.
  [[nodiscard]] double chance_unforeseen() const;

 private:
  const Policy::Surrogate* policy_;
  double narrowest_;
  std::vector<double> errors_, widened_;
};

/// A Gaussian process over the features (Rasmussen and Williams 2006, chapters 2 and 5).
///
/// Values are differences of logarithms: measured against predicted. The prior is a sum of parts.
/// One is a constant. Each value of a knob has a part, in which neighbours resemble each other.
/// Each pair of values has one if its knobs act together; a pair with the shape of the group has
/// another. Where predictions tell no points apart, any two and three values have one, too, the
/// larger the more each of them brings. Others are a share of the prediction
/// itself, a linear and a smooth part over all features, and each member's own part.
///
/// The variances of the parts and of the noise are those that make the samples likeliest. The part
/// of a value that no sample has stays as uncertain as it was, whatever the samples say of other
/// knobs.
class Surrogate {
 public:
  /// `predicted`: of each point, a logarithm; empty where nothing is.
  /// `unknowns`: of each point, by how much its value changes with each of some unknowns that do
  /// not depend on each other, in their deviations; empty where none is its own, or there are none.
  explicit Surrogate(const Points& points, std::span<const double> predicted = {},
                     std::span<const std::vector<double>> unknowns = {},
                     const Policy::Surrogate& policy = default_policy().surrogate);
  ~Surrogate();
  Surrogate(const Surrogate&) = delete;
  Surrogate& operator=(const Surrogate&) = delete;

  /// Learns how the samples hang together. O(samples³), many times; the points do not matter.
  void learn(std::span<const Sample> samples);
  /// Takes these samples for what is known, as learnt before. O(points · samples²). At least one.
  void condition(std::span<const Sample> samples);

  [[nodiscard]] Posterior at(std::size_t point) const;
  /// value(point) − value(other): less uncertain than the two where they resemble each other.
  [[nodiscard]] Posterior difference(std::size_t point, std::size_t other) const;
  /// The factor, as learnt, for the deviations that samples state of their noise.
  [[nodiscard]] double noise_scale() const;
  /// Makes all posteriors wider or narrower.
  void trust(double scale, bool has_heavy_tails);
  /// The chance that value(point) + offset is above value(other) for any of the points, from so
  /// many joint draws. Deterministic for the same seed.
  struct Challenger {
    std::size_t point = 0;
    double offset = 0;
  };
  [[nodiscard]] double chance_of_any(std::span<const Challenger> challengers, std::size_t other,
                                     std::uint64_t seed, int num_draws) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The chance that such a number is above 0.
[[nodiscard]] double chance_above_zero(const Posterior& posterior);
/// The mean of max(0, x) for such a number x.
[[nodiscard]] double expected_improvement(const Posterior& posterior);

/// Tells which of several points is the better one, learnt from measured ones. It has
/// gradient-boosted regression trees on the pairwise logistic loss, with the settings of
/// DeepSpeed's cost model. Sources: Chen and Guestrin, XGBoost, KDD 2016, sections 2 and 3.1;
/// Burges et al., ICML 2005.
class BoostedTrees {
 public:
  /// The points outlive it.
  explicit BoostedTrees(const Points& points,
                        const Policy::ModelBased& policy = default_policy().model_based)
      : points_(&points), policy_(&policy) {}

  struct Example {
    std::size_t point = 0;
    double value = 0;  ///< larger is better
  };
  /// Learns from these alone. O(rounds · (examples² + features · examples · log examples)).
  void learn(std::span<const Example> examples);
  /// Larger for what is likely to be better; means nothing by itself. 0 before learning.
  [[nodiscard]] double score(std::size_t point) const;

 private:
  /// A node; leaves have no feature. Children lie beside each other.
  struct Node {
    std::size_t feature = 0;
    double threshold = 0;  ///< smaller values go left
    std::size_t left = 0;  ///< 0: a leaf
    double value = 0;      ///< of a leaf
  };
  struct Gradient {
    double first = 0, second = 0;
  };
  using Tree = std::vector<Node>;

  void grow(Tree& tree, std::size_t node, std::vector<std::size_t> members, int depth,
            std::span<const Example> examples, std::span<const Gradient> gradients) const;
  [[nodiscard]] double value_of(const Tree& tree, std::size_t point) const;

  const Points* points_;
  const Policy::ModelBased* policy_;
  std::vector<Tree> trees_;
};

}  // namespace dstune
