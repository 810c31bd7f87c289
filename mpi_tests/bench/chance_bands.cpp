#include "chance_bands.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>

#include <fmt/format.h>

namespace dstune::bench {
namespace {

/// Beliefs of one search that lie in a band: how many, and how many came true.
struct Tally {
  double beliefs = 0, true_ones = 0, chances = 0;
};

/// The share that came true, of searches that are drawn anew.
double drawn_share(const std::vector<Tally>& of_search, std::mt19937_64& random) {
  Tally sum;
  for (std::size_t draw = 0; draw < of_search.size(); ++draw) {
    const Tally& one = of_search[random() % of_search.size()];
    sum.beliefs += one.beliefs;
    sum.true_ones += one.true_ones;
  }
  return sum.true_ones / sum.beliefs;
}

Figure interval(double from, double to) {
  return fmt::format("{:.1f} to {:.1f}", 100 * from, 100 * to);
}

void print_band(double low, double high, const std::vector<Tally>& of_search,
                FigureTables& tables) {
  constexpr std::size_t few = 100;
  constexpr std::size_t num_draws = 2000;
  Tally sum;
  for (const Tally& one : of_search) {
    sum.beliefs += one.beliefs;
    sum.true_ones += one.true_ones;
    sum.chances += one.chances;
  }
  const std::string band = fmt::format("{:.0f} to {:.0f} %", 100 * low, 100 * high);
  if (of_search.empty()) {
    tables.row({band, of_search.size(), 0, {}, {}, {}, "too few"});
    return;
  }
  std::mt19937_64 random(1);
  std::vector<double> shares;
  for (std::size_t draw = 0; draw < num_draws; ++draw)
    shares.push_back(drawn_share(of_search, random));
  std::ranges::sort(shares);
  const double from = shares[num_draws / 40], to = shares[num_draws - 1 - num_draws / 40];
  const char* const verdict = of_search.size() < few      ? "too few"
                              : from <= high && to >= low ? "holds"
                                                          : "is off";
  tables.row({band,
              of_search.size(),
              {sum.beliefs, 0},
              {100 * sum.chances / sum.beliefs, 1},
              {100 * sum.true_ones / sum.beliefs, 1},
              interval(from, to),
              verdict});
}

/// Beliefs of one search belong together.
void print_bands(const char* name, const char* title,
                 const std::vector<std::vector<Belief>>& of_searches, FigureTables& tables) {
  tables.begin(name, title,
               {"stated", "searches", "times", "mean %", "came true %", "95 % interval", "band"});
  constexpr std::array<double, 10> edges = {0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95, 1};
  for (std::size_t band = 0; band + 1 < edges.size(); ++band) {
    std::vector<Tally> of_search;
    for (const std::vector<Belief>& beliefs : of_searches) {
      Tally tally;
      for (const Belief& belief : beliefs) {
        const bool is_last = band + 2 == edges.size();
        if (belief.chance < edges[band] || (belief.chance >= edges[band + 1] && !is_last)) continue;
        ++tally.beliefs;
        tally.true_ones += belief.came_true ? 1 : 0;
        tally.chances += belief.chance;
      }
      if (tally.beliefs > 0) of_search.push_back(tally);
    }
    print_band(edges[band], edges[band + 1], of_search, tables);
  }
}

}  // namespace

void print_chances(const std::vector<const SimulatedSearch*>& searches, FigureTables& tables) {
  std::vector<std::vector<Belief>> of_better, of_answer;
  for (const SimulatedSearch* const one : searches) {
    of_better.push_back(one->better_elsewhere);
    of_answer.emplace_back();
    if (one->is_best) of_answer.back().push_back(*one->is_best);
  }
  print_bands("better elsewhere",
              "Something that was not run is more than 1 % better than the best:", of_better,
              tables);
  print_bands("best", "The answer is the best of what was measured:", of_answer, tables);
}

}  // namespace dstune::bench
