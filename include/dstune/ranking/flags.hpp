#pragma once
/// What is strange about measurements: outliers, steps that become slower, GPUs that are throttled
/// or shared, hosts that are slower than others, knobs that change what is computed.
/// docs/measuring.md has the rules. Local.

#include <cstddef>
#include <string>
#include <vector>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {

/// Before the reason why times say nothing of a GPU for each rank.
inline constexpr const char* not_comparable_words = "not comparable with GPUs of their own";

/// Of one run and its timed steps; empty where nothing is strange.
[[nodiscard]] std::vector<std::string> flags_of(const Measurement& measurement);

enum class FlagKind { unsteady, throttled, not_comparable };
/// How many experiments have a flag of a kind; the first of them.
struct FlagCount {
  FlagKind kind = FlagKind::unsteady;
  std::size_t count = 0;
  std::string first_name{};
  std::string first_flag{};
};
/// In the order of the kinds, those that at least one experiment has.
[[nodiscard]] std::vector<FlagCount> count_flags(const std::vector<Row>& rows);

/// A host on which the forward takes longer than on the others of its groups, in all of them.
struct SlowHost {
  std::string host;
  int groups = 0;        ///< that it was compared in
  double slower_by = 0;  ///< median over them, 0.1: by a tenth
};
/// Only groups on several hosts tell; below stage 3, where nobody waits for others in forward.
[[nodiscard]] std::vector<SlowHost> slow_hosts(const std::vector<Row>& rows);

/// Keys of zero_optimization by which a configuration's losses are others than without: ZeRO++'s
/// quantisation. None as a rule; docs/reference-step.md, 6.3 and 7, has how much.
[[nodiscard]] std::vector<std::string> changed_numerics(const Experiment& experiment);

}  // namespace dstune
