#pragma once
/// Made truths in which groups of several sizes run: see TruthKind. Local.

#include "simulated_search.hpp"
#include "truth_parts.hpp"
#include "truths.hpp"

namespace dstune::bench {

/// Of a kind that has groups; without a look at how hard it is.
[[nodiscard]] SimulatedSpace draw_groups(TruthKind kind, Draw& draw);

}  // namespace dstune::bench
