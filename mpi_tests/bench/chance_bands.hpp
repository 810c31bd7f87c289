#pragma once
/// Chances that searches stated, against how often they came true. Local.

#include <vector>

#include "figure_tables.hpp"
#include "simulated_search.hpp"

namespace dstune::bench {

/// Prints two tables: that something that was not run is better, after every experiment,
/// and that the answer is the best of what ran. Each has what was stated in each band, and what
/// came true, with the interval of searches that are drawn anew.
void print_chances(const std::vector<const SimulatedSearch*>& searches, FigureTables& tables);

}  // namespace dstune::bench
