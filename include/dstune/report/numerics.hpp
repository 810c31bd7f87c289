#pragma once
/// Which of a configuration's knobs change what a training computes, and not only in which order:
/// ZeRO++'s quantisation. docs/reference-step.md, 6.3 and 7, has how much. Local.

#include <string>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune {

/// Keys of zero_optimization, by which its losses are others than without; none as a rule.
[[nodiscard]] std::vector<std::string> changed_numerics(const Experiment& experiment);

/// The same as a sentence's end for people; empty where there are none.
[[nodiscard]] std::string changed_numerics_text(const Experiment& experiment);

}  // namespace dstune
