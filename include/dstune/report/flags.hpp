#pragma once
/// What is strange about measurements, in words: outliers, steps that become slower, GPUs that are
/// throttled or shared, hosts that are slower than others. docs/measuring.md has the rules. Local.

#include <string>
#include <vector>

#include "dstune/report/results.hpp"

namespace dstune {

/// Before the reason why times say nothing of a GPU for each rank.
inline constexpr const char* not_comparable_words = "not comparable with GPUs of their own";

/// Of one run and its timed steps; empty where nothing is strange.
[[nodiscard]] std::vector<std::string> flags_of(const Measurement& measurement);

/// A host on which the forward takes longer than on the others of its groups, in all of them.
struct SlowHost {
  std::string host;
  int groups = 0;        ///< that it was compared in
  double slower_by = 0;  ///< median over them, 0.1: by a tenth
};
/// Only groups on several hosts tell; below stage 3, where nobody waits for others in forward.
[[nodiscard]] std::vector<SlowHost> slow_hosts(const Report& report);

/// A line for people for each slow host, and one for how many experiments have flags of a kind.
[[nodiscard]] std::vector<std::string> warning_lines(const Report& report);

}  // namespace dstune
