#include "load_figures.hpp"

#include <algorithm>

namespace dstune::bench {
namespace {

/// An answer that is further below the quiet one is worse.
constexpr double as_good = 0.01;

double mean(const std::vector<LoadedSearch>& searches, const auto& value) {
  double sum = 0;
  for (const LoadedSearch& one : searches) sum += value(one);
  return sum / static_cast<double>(searches.size());
}

double percent(double share) {
  return 100 * share;
}

/// Of all ratios that were stated, those whose interval holds the true one.
double held(const std::vector<LoadedSearch>& searches, SimulatedSearch LoadedSearch::*which) {
  double held = 0, stated = 0;
  for (const LoadedSearch& one : searches) {
    held += static_cast<double>((one.*which).ratios_held);
    stated += static_cast<double>((one.*which).ratios_stated);
  }
  return stated > 0 ? held / stated : 0;
}

}  // namespace

void print_load_heading(FigureTables& tables) {
  tables.begin(
      "load", "",
      {"space", "searches", "as good as quiet", "1 % better", "mean regret % quiet",
       "mean regret % loaded", "worst %", "experiments quiet", "experiments loaded",
       "time of grid % quiet", "time of grid % loaded", "more time %", "controls: % of time quiet",
       "controls: % of time loaded", "ratios held % quiet", "ratios held % loaded"});
}

void print_load_row(const std::string& space, const std::vector<LoadedSearch>& searches,
                    FigureTables& tables) {
  std::size_t good = 0, better = 0;
  double worst = 0;
  for (const auto& [quiet, loaded, grid_s] : searches) {
    good += loaded.regret <= quiet.regret + as_good ? 1 : 0;
    better += loaded.regret < quiet.regret - as_good ? 1 : 0;
    worst = std::max(worst, loaded.regret);
  }
  const auto both = [&](const auto& value) {
    return std::pair(
        mean(searches, [&](const LoadedSearch& one) { return value(one, one.quiet); }),
        mean(searches, [&](const LoadedSearch& one) { return value(one, one.loaded); }));
  };
  using Search = SimulatedSearch;
  using Pair = LoadedSearch;
  const auto regret = both([](const Pair&, const Search& one) { return percent(one.regret); });
  const auto runs =
      both([](const Pair&, const Search& one) { return static_cast<double>(one.experiments); });
  const auto time = both(
      [](const Pair& pair, const Search& one) { return percent(one.undisturbed_s / pair.grid_s); });
  const auto controls = both(
      [](const Pair&, const Search& one) { return percent(one.controls_s / one.undisturbed_s); });
  tables.row({space,
              searches.size(),
              good,
              better,
              {regret.first, 2},
              {regret.second, 2},
              {percent(worst), 1},
              {runs.first, 1},
              {runs.second, 1},
              {time.first, 1},
              {time.second, 1},
              {percent(time.second / time.first - 1), 0},
              {controls.first, 1},
              {controls.second, 1},
              {percent(held(searches, &LoadedSearch::quiet)), 0},
              {percent(held(searches, &LoadedSearch::loaded)), 0}});
}

}  // namespace dstune::bench
