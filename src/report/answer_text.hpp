#pragma once
/// Words about an answer that the summary and the page have in common. Local.

#include <string>
#include <utility>
#include <vector>

#include "dstune/ranking/answer.hpp"

namespace dstune {

/// Why the answer is another one than the best that was measured here; empty where it is that one.
std::string choice_text(const Recommendation& recommendation);

/// What the calibration does, how often the answer was measured, how sure it is, and what energy it
/// takes: pairs of what and what of it. Of an answer with a recommendation.
std::vector<std::pair<std::string, std::string>> confidence_lines(const Answer& answer);

/// Whether its losses are others than without some key, as a sentence's end; empty as a rule.
std::string changed_numerics_text(const Experiment& experiment);

/// A line for each slow host, and one for how many experiments have flags of a kind.
std::vector<std::string> warning_lines(const Answer& answer);

}  // namespace dstune
