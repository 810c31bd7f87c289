#pragma once
/// Spaces whose truth is made by a formula, so that it is known without noise, and whose
/// predictions are wrong in a way that has a name. docs/figures/search.md has what a search makes
/// of them. Local.

#include <cstdint>

#include "dstune/base/text.hpp"
#include "simulated_search.hpp"

namespace dstune::bench {

/// In which way predictions, or the machine, mislead.
enum class TruthKind {
  stages,                   ///< each ZeRO stage is faster or slower than predicted
  silent_knob,              ///< a knob of which nothing is predicted costs up to a third
  saturation,               ///< larger micro-batches bring less and less, then harm
  interaction,              ///< each pair of a stage and a bucket size has a factor of its own
  cliff,                    ///< what needs more than some memory takes up to twice as long
  heavy_tails,              ///< each member has an error of its own, a few a very large one
  drift,                    ///< the machine is faster at one time than at another
  jumps,                    ///< every fourth run is 15 % slower
  offload,                  ///< what is offloaded takes more or less than predicted
  no_information,           ///< predictions are of other members
  smooth,                   ///< errors change smoothly with all knobs
  other_machine,            ///< predictions are right, but of another machine
  group_sizes,              ///< each pair of a stage and a group size has a factor of its own
  nodes,                    ///< the link between nodes is slower than predicted
  tiers,                    ///< kernels and links change speed at sizes that nobody predicts
  group_sizes_unpredicted,  ///< the same without predictions
  nodes_unpredicted,        ///< likewise
  tiers_unpredicted,        ///< likewise
};
[[nodiscard]] const EnumTexts& texts_of(TruthKind);
/// `smooth` and `other_machine` were not looked at before the search was judged by all.
inline constexpr int num_truth_kinds = static_cast<int>(TruthKind::tiers_unpredicted) + 1;

/// Groups of ranks differ in size.
[[nodiscard]] constexpr bool has_groups(TruthKind kind) {
  return kind >= TruthKind::group_sizes;
}
/// Predictions say something of the truth.
[[nodiscard]] constexpr bool has_information(TruthKind kind) {
  return kind != TruthKind::no_information && kind < TruthKind::group_sizes_unpredicted;
}

/// 100 to 400 members, and to 960 where groups differ; at most a twentieth of them within 1 % of
/// the best; without information at least eight within 5 %, too. The same for the same kind and
/// seed, on every machine.
[[nodiscard]] SimulatedSpace make_truth(TruthKind kind, std::uint64_t seed);

}  // namespace dstune::bench
