#pragma once
/// The best member of a search that goes on, as progress tells of it. Local.

#include <optional>
#include <string>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

/// The best member so far, by what members are ranked by.
struct BestSoFar {
  std::string name{};
  int num_ranks = 1;
  double value = 0;
  Metric metric = Metric::throughput;
  bool is_expected = false;  ///< in the user's training; else it was measured here
  bool is_baseline = false;
  std::optional<double> gain{};  ///< in speed over the baseline; nothing before that has run
  bool operator==(const BestSoFar&) const = default;
};

/// Nothing as long as no member has a finite value.
[[nodiscard]] std::optional<BestSoFar> best_so_far(const Scoreboard& scoreboard);

}  // namespace dstune
