#pragma once
/// Which of several points is the better one, learnt from measured ones: gradient-boosted
/// regression trees on the pairwise logistic loss (Chen and Guestrin, XGBoost, KDD 2016, sections 2
/// and 3.1; Burges et al., ICML 2005), with the settings of DeepSpeed's cost model. Local.

#include <cstddef>
#include <span>
#include <vector>

#include "surrogate.hpp"

namespace dstune {

class BoostedTrees {
 public:
  /// The points outlive it.
  explicit BoostedTrees(const Points& points) : points_(&points) {}

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
  std::vector<Tree> trees_;
};

}  // namespace dstune
