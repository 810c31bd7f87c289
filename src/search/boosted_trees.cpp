#include <algorithm>
#include <cmath>
#include <numeric>

#include "surrogate.hpp"

namespace dstune {

void BoostedTrees::learn(std::span<const Example> examples) {
  trees_.clear();
  std::vector<double> scores(examples.size());
  std::vector<std::size_t> all(examples.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (int round = 0; round < policy_->num_rounds; ++round) {
    std::vector<Gradient> gradients(examples.size());
    for (std::size_t better = 0; better < examples.size(); ++better) {
      for (std::size_t worse = 0; worse < examples.size(); ++worse) {
        if (examples[better].value <= examples[worse].value) continue;
        const double wrong = 1 / (1 + std::exp(scores[better] - scores[worse]));
        const double curvature = 2 * wrong * (1 - wrong);
        gradients[better].first -= wrong;
        gradients[worse].first += wrong;
        gradients[better].second += curvature;
        gradients[worse].second += curvature;
      }
    }
    Tree tree(1);
    grow(tree, 0, all, 0, examples, gradients);
    for (std::size_t example = 0; example < examples.size(); ++example)
      scores[example] += value_of(tree, examples[example].point);
    trees_.push_back(std::move(tree));
  }
}

double BoostedTrees::score(std::size_t point) const {
  double total = 0;
  for (const Tree& tree : trees_) total += value_of(tree, point);
  return total;
}

double BoostedTrees::value_of(const Tree& tree, std::size_t point) const {
  std::size_t node = 0;
  while (tree[node].left != 0) {
    const bool is_left = (*points_)[point][tree[node].feature] < tree[node].threshold;
    node = tree[node].left + (is_left ? 0 : 1);
  }
  return tree[node].value;
}

void BoostedTrees::grow(Tree& tree, std::size_t node, std::vector<std::size_t> members, int depth,
                        std::span<const Example> examples,
                        std::span<const Gradient> gradients) const {
  const auto gain_of = [&](const Gradient& sum) {
    return sum.first * sum.first / (sum.second + policy_->value_penalty);
  };
  Gradient total;
  for (const std::size_t member : members) {
    total.first += gradients[member].first;
    total.second += gradients[member].second;
  }
  const auto feature_of = [&](std::size_t member, std::size_t feature) {
    return (*points_)[examples[member].point][feature];
  };
  double best_gain = 0;
  for (std::size_t feature = 0; depth < policy_->max_depth && feature < points_->num_features;
       ++feature) {
    std::ranges::stable_sort(members, {},
                             [&](std::size_t member) { return feature_of(member, feature); });
    Gradient left;
    for (std::size_t at = 0; at + 1 < members.size(); ++at) {
      left.first += gradients[members[at]].first;
      left.second += gradients[members[at]].second;
      const double low = feature_of(members[at], feature);
      const double high = feature_of(members[at + 1], feature);
      const Gradient right{total.first - left.first, total.second - left.second};
      if (low == high || left.second < policy_->min_curvature ||
          right.second < policy_->min_curvature)
        continue;
      const double gain =
          0.5 * (gain_of(left) + gain_of(right) - gain_of(total)) - policy_->leaf_penalty;
      if (gain <= best_gain) continue;
      best_gain = gain;
      tree[node].feature = feature;
      tree[node].threshold = 0.5 * (low + high);
    }
  }
  if (best_gain <= 0) {
    tree[node].value =
        -policy_->learning_rate * total.first / (total.second + policy_->value_penalty);
    return;
  }
  const auto middle = std::partition(members.begin(), members.end(), [&](std::size_t member) {
    return feature_of(member, tree[node].feature) < tree[node].threshold;
  });
  const std::size_t left = tree.size();
  tree[node].left = left;
  tree.resize(left + 2);
  grow(tree, left, {members.begin(), middle}, depth + 1, examples, gradients);
  grow(tree, left + 1, {middle, members.end()}, depth + 1, examples, gradients);
}

}  // namespace dstune
