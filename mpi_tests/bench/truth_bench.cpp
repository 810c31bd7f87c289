// Searches spaces whose truth is made by a formula (truths.hpp), in simulated time:
//   truth_bench [--kinds stages,jumps] [--tuner race] [--seeds 50] [--first-seed 1000] [--race]
//               [--turns] [--policy GROUP.NAME=FACTOR] [--json]
// Prints what the searches found and what it cost, by kind, beside as many runs in predicted order
// and the best three again. Time is that of all steps, of what one run of each member takes. Prints
// whether the chances that they stated came true, as Markdown tables. Seeds from 1000 on are those
// of docs/figures/search.md; the search was built with smaller ones. --turns: finalists stay built
// and take turns step by step; what disturbs one of a round then disturbs all of it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "chance_bands.hpp"
#include "figure_tables.hpp"
#include "truths.hpp"

namespace dstune::bench {
namespace {

struct Options {
  std::vector<TruthKind> kinds;
  SimulationOptions simulation;
  int num_seeds = 50;
  std::uint64_t first_seed = 1000;
  bool is_json = false;
};

struct Searched {
  TruthKind kind{};
  std::size_t members = 0;
  double grid_s = 0;
  SimulatedSearch search;
  [[nodiscard]] double share() const {
    return static_cast<double>(search.experiments) / static_cast<double>(members);
  }
  /// Finals included, of what one run of each member takes.
  [[nodiscard]] double share_of_time() const { return search.seconds / grid_s; }
};

/// Without beliefs that hold a search goes on to the cap.
bool is_past_cap(const Searched& one) {
  const double cap = std::max(10.0, std::ceil(0.35 * static_cast<double>(one.members)));
  return static_cast<double>(one.search.experiments) > cap;
}

bool is_sure(const Searched& one) {
  const auto& beliefs = one.search.better_elsewhere;
  return !beliefs.empty() && beliefs.back().chance <= 0.05;
}

template <class Condition>
double percent(const std::vector<Searched>& all, const Condition& condition) {
  return 100.0 * static_cast<double>(std::ranges::count_if(all, condition)) /
         static_cast<double>(all.size());
}

void print_row(const std::string& name, const std::vector<Searched>& all, FigureTables& tables) {
  double regret = 0, worst = 0, share = 0, most = 0, time = 0, tuner_s = 0;
  for (const Searched& one : all) {
    regret += one.search.regret;
    worst = std::max(worst, one.search.regret);
    share += one.share();
    most = std::max(most, one.share());
    time += one.share_of_time();
    tuner_s += one.search.tuner_s;
  }
  const auto count = static_cast<double>(all.size());
  const auto within = [&](double least) {
    return percent(all, [=](const Searched& one) { return one.search.regret <= least; });
  };
  const bool states_chances = !all.front().search.better_elsewhere.empty();
  tables.row({name,
              all.size(),
              {within(0.01), 0},
              {within(0.05), 0},
              {100 * regret / count, 2},
              {100 * worst, 1},
              {100 * share / count, 1},
              {100 * most, 1},
              {100 * time / count, 1},
              {percent(all, is_past_cap), 0},
              states_chances ? Figure(percent(all, is_sure), 0) : Figure(),
              {tuner_s / count, 2}});
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    const auto value = [&]() -> std::string {
      if (at + 1 == argc) throw std::runtime_error(word + " needs a value");
      return argv[++at];
    };
    if (word == "--kinds") {
      std::stringstream list(value());
      for (std::string name; std::getline(list, name, ',');) {
        const auto kind = from_text<TruthKind>(name);
        if (!kind) throw std::runtime_error("there is no kind " + name);
        options.kinds.push_back(*kind);
      }
    } else if (word == "--tuner") {
      options.simulation.tuner = value();
    } else if (word == "--seeds") {
      options.num_seeds = std::max(1, std::stoi(value()));
    } else if (word == "--first-seed") {
      options.first_seed = std::stoull(value());
    } else if (word == "--race") {
      options.simulation.races = true;
    } else if (word == "--turns") {
      options.simulation.keeps_finalists = true;
    } else if (word == "--json") {
      options.is_json = true;
    } else if (word == "--policy") {
      change_policy_by(value());
    } else {
      throw std::runtime_error(word + " is no option");
    }
  }
  if (options.kinds.empty())
    for (int kind = 0; kind < num_truth_kinds; ++kind)
      options.kinds.push_back(static_cast<TruthKind>(kind));
  return options;
}

void run(const Options& options) {
  FigureTables tables(options.is_json);
  tables.begin("kinds", "",
               {"kind", "searches", "within 1 %", "within 5 %", "mean regret %", "worst %",
                "experiments %", "most %", "time %", "past the cap %", "sure %", "tuner s"});
  std::vector<Searched> informed, informed_in_order, all;
  for (const TruthKind kind : options.kinds) {
    std::vector<Searched> of_kind, in_order;
    for (int number = 0; number < options.num_seeds; ++number) {
      const std::uint64_t seed = options.first_seed + static_cast<std::uint64_t>(number);
      const SimulatedSpace truth = make_truth(kind, seed);
      const auto number_of_draws = static_cast<std::int64_t>(seed);
      Searched one{kind, truth.truth.size(), truth.grid_s,
                   simulate(truth, options.simulation, number_of_draws)};
      of_kind.push_back(one);
      one.search = in_predicted_order(truth, one.search.experiments, 0, number_of_draws);
      in_order.push_back(std::move(one));
    }
    print_row(std::string(to_text(kind)), of_kind, tables);
    print_row(fmt::format("{}, predicted order", to_text(kind)), in_order, tables);
    all.insert(all.end(), of_kind.begin(), of_kind.end());
    if (has_information(kind)) {
      informed.insert(informed.end(), of_kind.begin(), of_kind.end());
      informed_in_order.insert(informed_in_order.end(), in_order.begin(), in_order.end());
    }
  }
  if (!informed.empty()) {
    print_row("all with information", informed, tables);
    print_row("all with information, predicted order", informed_in_order, tables);
  }
  std::vector<const SimulatedSearch*> searches;
  for (const Searched& one : all) searches.push_back(&one.search);
  print_chances(searches, tables);
  tables.end();
}

}  // namespace
}  // namespace dstune::bench

int main(int argc, char** argv) {
  try {
    dstune::bench::run(dstune::bench::read_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
