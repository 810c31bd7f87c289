#pragma once
/// Searches beside a load that comes and goes, against the same searches without one. Local.

#include <string>
#include <vector>

#include "figure_tables.hpp"
#include "simulated_search.hpp"

namespace dstune::bench {

/// One search by the same seed: without a load, and beside one.
struct LoadedSearch {
  SimulatedSearch quiet, loaded;
  /// What the grid would take without a load.
  double grid_s = 0;
};

void print_load_heading(FigureTables& tables);
/// Prints the row of a table: how many searches end as good as without the load, and what it costs.
void print_load_row(const std::string& space, const std::vector<LoadedSearch>& searches,
                    FigureTables& tables);

}  // namespace dstune::bench
