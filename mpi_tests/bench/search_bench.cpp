// Searches recorded spaces again, without training, in simulated time:
//   search_bench [--tuners gridsearch,random,model_based,race] [--seeds 50]
//                [--first-seed 0] [--slots 1] [--share 15] [--race] [--finals] [--turns] [--means]
//                [--predict]
//                [--num-trials N] [--slices 1] [--build-ms 2.8] [--policy GROUP.NAME=FACTOR]
//                [--no-controls] [--load FACTOR[:SHORTEST_S:LONGEST_S]]
//                [--predictions-of FILE | --predictions-of-device NAME] [--bands] [--json]
//                mpi_tests/bench/tables/NAME.json ...
// A tuner asks and is told through the interface that a job uses. Every trial that is run draws its
// timed steps from those that were recorded, in blocks that keep neighbours together, so that no
// two searches see the same figures; what a choice is worth is its recorded mean. Where runs were
// recorded on a disturbed machine, all steps of a trial are of one of them, and what a choice is
// worth is what it took where nothing disturbed it. --share: the percent of the members that random
// may run, which has no rule by which it stops. --race: trials are stopped where they have lost to
// the best so far, by a job's rule (metric: throughput). --finals: the finalists are measured again
// and the answer is chosen as a job does; the rounds count as steps. --turns: the finalists stay
// built and warm meanwhile and take turns step by step; else each is built and warmed for each run.
// Time is the steps', warm-up included, and --build-ms for whatever is built: that of a quiet job
// (docs/figures/performance.md). --means: the mean of the steps stands for a run, also where steps
// are interrupted. --predict: predictions are made anew from the profile of the recording.
// --num-trials: how many experiments a search may run. --slices: a trial, or a round of finals, is
// this part of a recorded run (0.4 s); 1 is a job's slice with a trial_budget_s of 2, 5 one of 0.4.
// --load: a load that comes and goes is beside each search, by its seed; the same search without
// one is what it is compared with. Then the table is another one: a search is as good as quiet if
// its answer's true value is at most 1 % worse. More time is that of the steps without the load's
// factor. A ratio is held if the interval that is stated of a finalist's ratio to the answer has
// the true one.
// --policy: a value of the job's policy, as environment.json names it, times a factor.
// --predictions-of: predictions are made by a profile of another machine or network, that of a
// --profile-out or of another table's NAME.made.json. --predictions-of-device: by a GPU's published
// rates. Before the searches a table then says how far both predictions are from what was measured;
// error is the mean one, less the factor that all have in common. A table that the profile can not
// predict is named and left out.
// --bands: at the end, the chances that race stated, and how often they came true.
// Prints Markdown tables, with --json what scripts/figures.py reads. Beside race the table has
// "predicted order": as many members are run once, as they are predicted, and the best three once
// more.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <ranges>
#include <sstream>

#include <fmt/format.h>

#include "chance_bands.hpp"
#include "dstune/core/job.hpp"
#include "figure_tables.hpp"
#include "load_figures.hpp"
#include "search_table.hpp"
#include "simulated_search.hpp"

namespace dstune::bench {
namespace {

/// Steps that stay together in a draw.
constexpr std::size_t block_steps = 4;

struct Options {
  std::vector<std::string> tuners = {"gridsearch", "random", "model_based", "race"};
  int num_seeds = 50, first_seed = 0;
  std::size_t num_slots = 1;
  double share = 15;
  PredictionsOf predictions;
  bool has_bands = false;
  bool is_json = false;
  bool races = false;
  bool has_controls = true;
  bool has_finals = false, keeps_finalists = false;
  bool has_means = false;
  std::optional<int> num_trials;
  int slices = 1;  ///< that a recorded run is divided into
  double build_s = 2.8e-3;
  std::optional<ComingLoad::Options> load;
  std::vector<std::string> paths;
};

auto seeds_of(const Options& options) {
  return std::views::iota(options.first_seed, options.first_seed + options.num_seeds);
}

/// The row beside race: as many runs in predicted order, and the best three again.
const std::string in_order = "predicted order";

/// One search, as shares of what the grid takes and of the best.
struct Search {
  std::size_t num_experiments = 0;
  double experiments = 0, steps = 0, time = 0;
  double seconds = 0, finals_s = 0;
  double regret = 0;
  double tuner_s = 0;  ///< the tuner's own time, real
  /// At the end: that something that was not run is better, that the answer is the best of the
  /// rest.
  std::optional<Belief> better_elsewhere{}, is_best{};
  SimulatedSearch simulated{};
};

/// What running everything takes.
struct Grid {
  double experiments = 0, steps = 0, seconds = 0;
  double best = 0;
};

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

/// Timed steps of a slice: a part of what one of a member's recorded runs had on average.
std::size_t steps_of_slice(const SearchTable& table, std::size_t member, int slices) {
  const Measurement& all = table.measurements[member];
  const auto first = static_cast<std::size_t>(all.warmup_steps);
  if (all.step_times_s.size() <= first) return 0;
  const std::size_t of_run = (all.step_times_s.size() - first) / table.runs[member];
  return std::clamp<std::size_t>(of_run / static_cast<std::size_t>(slices),
                                 default_policy().measuring.min_timed_steps,
                                 all.step_times_s.size() - first);
}

/// The timed steps of each recorded run; of all together where runs are not to be told apart.
std::vector<std::vector<double>> recorded_runs(const SearchTable& table, std::size_t member) {
  const std::vector<double> all = timed_steps_s(table.measurements[member]);
  if (table.run_steps[member].empty()) return {all};
  std::vector<std::vector<double>> runs;
  auto from = all.begin();
  for (const std::size_t steps : table.run_steps[member]) {
    runs.emplace_back(from, from + static_cast<std::ptrdiff_t>(steps));
    from += static_cast<std::ptrdiff_t>(steps);
  }
  return runs;
}

/// A trial: the steps of a slice, in blocks from anywhere among the recorded.
Measurement drawn(const SearchTable& table, std::size_t member, int slices,
                  std::mt19937_64& random) {
  Measurement trial = table.measurements[member];
  const std::vector<std::vector<double>> runs = recorded_runs(table, member);
  const std::vector<double>& recorded = runs.size() > 1 ? runs[random() % runs.size()] : runs[0];
  const auto first = static_cast<std::size_t>(trial.warmup_steps);
  if (recorded.empty()) return trial;
  trial.step_times_s.resize(first + steps_of_slice(table, member, slices));
  for (std::size_t step = 0, from = 0; first + step < trial.step_times_s.size(); ++step, ++from) {
    if (step % block_steps == 0) from = random() % recorded.size();
    trial.step_times_s[first + step] = recorded[from % recorded.size()];
  }
  return trial;
}

Grid grid_of(const SearchTable& table, const Options& options) {
  Grid grid;
  for (std::size_t member = 0; member < table.measurements.size(); ++member) {
    if (table.space.members[member].planned.status != PlanStatus::planned) continue;
    const Measurement& measured = table.measurements[member];
    ++grid.experiments;
    const auto steps = static_cast<double>(steps_of_slice(table, member, options.slices));
    grid.steps += static_cast<double>(measured.warmup_steps) + steps;
    grid.seconds += options.build_s;
    const std::vector<double> timed_s = timed_steps_s(measured);
    if (!timed_s.empty())
      grid.seconds += sum(measured.step_times_s) - sum(timed_s) +
                      sum(timed_s) / static_cast<double>(timed_s.size()) * steps;
    grid.best = std::max(grid.best, worth_of(table, member));
  }
  return grid;
}

/// The order of random, and its cap, are the plan's.
std::vector<std::size_t> drawn_order(const SearchTable& table, double share, std::int64_t seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed) + 1);
  std::vector<std::size_t> members;
  for (std::size_t member = 0; member < table.space.members.size(); ++member)
    if (table.space.members[member].planned.status == PlanStatus::planned)
      members.push_back(member);
  for (std::size_t left = members.size(); left > 1; --left)
    std::swap(members[left - 1], members[random() % left]);
  members.resize(std::max<std::size_t>(
      1, static_cast<std::size_t>(static_cast<double>(members.size()) * share / 100)));
  return members;
}

/// `experiments`: of a search in predicted order, which is none of the tuners.
Search search(const SearchTable& table, const Grid& grid, const std::string& type,
              const Options& options, std::int64_t seed, std::size_t experiments = 0) {
  std::vector<std::size_t> member_of(table.space.members.size());
  std::iota(member_of.begin(), member_of.end(), std::size_t{0});
  SimulatedSpace simulated{table.space, table.job.tuning, {}, {}};
  if (options.num_trials) simulated.tuning.num_trials = options.num_trials;
  if (type == "random") {
    member_of = drawn_order(table, options.share, seed);
    simulated.space.members.clear();
    simulated.space.baseline.reset();
    for (const std::size_t member : member_of)
      simulated.space.members.push_back(table.space.members[member]);
  }
  for (const std::size_t member : member_of) {
    simulated.truth.push_back(worth_of(table, member));
  }
  simulated.run = [&](std::size_t member, double, std::mt19937_64& random) {
    return drawn(table, member_of[member], options.slices, random);
  };
  std::optional<ComingLoad> load;
  if (options.load) {
    ComingLoad::Options of_seed = *options.load;
    of_seed.seed = static_cast<std::uint64_t>(seed);
    load.emplace(of_seed);
    simulated.load = [&](double now_s) { return load->at(now_s); };
  }
  const SimulatedSearch done =
      type == in_order ? in_predicted_order(simulated, experiments, options.build_s, seed)
                       : simulate(simulated,
                                  {.tuner = type,
                                   .num_slots = options.num_slots,
                                   .races = options.races,
                                   .has_controls = options.has_controls,
                                   .has_finals = options.has_finals,
                                   .keeps_finalists = options.keeps_finalists,
                                   .build_s = options.build_s,
                                   .has_means = options.has_means},
                                  seed);
  Search result;
  result.num_experiments = done.experiments;
  result.experiments = static_cast<double>(done.experiments) / grid.experiments;
  result.steps = static_cast<double>(done.steps) / grid.steps;
  result.time = done.seconds / grid.seconds;
  result.seconds = done.seconds;
  result.finals_s = done.finals_s;
  result.regret = 1 - simulated.truth[done.answer] / grid.best;
  result.tuner_s = done.tuner_s;
  if (!done.better_elsewhere.empty()) result.better_elsewhere = done.better_elsewhere.back();
  result.is_best = done.is_best;
  result.simulated = done;
  return result;
}

double mean(const std::vector<Search>& searches, double Search::*member) {
  double total = 0;
  for (const Search& one : searches) total += one.*member;
  return total / static_cast<double>(searches.size());
}

/// What was stated on average, and how often it came true; both in percent.
std::pair<Figure, Figure> stated_and_true(const std::vector<Search>& searches,
                                          std::optional<Belief> Search::*belief) {
  double count = 0, stated = 0, came_true = 0;
  for (const Search& one : searches) {
    if (!(one.*belief)) continue;
    ++count;
    stated += (one.*belief)->chance;
    came_true += (one.*belief)->came_true ? 1 : 0;
  }
  if (count == 0) return {};
  return {Figure(100 * stated / count, 0), Figure(100 * came_true / count, 0)};
}

void print_row(const std::string& space, const std::string& tuner,
               const std::vector<Search>& searches, FigureTables& tables) {
  std::vector<double> regrets;
  int close = 0;
  for (const Search& one : searches) {
    regrets.push_back(one.regret);
    close += one.regret <= 0.01 ? 1 : 0;
  }
  std::sort(regrets.begin(), regrets.end());
  const double late = regrets[(regrets.size() * 95 + 99) / 100 - 1];
  const auto elsewhere = stated_and_true(searches, &Search::better_elsewhere);
  const auto best = stated_and_true(searches, &Search::is_best);
  tables.row({space,
              tuner,
              searches.size(),
              {100 * mean(searches, &Search::experiments), 1},
              {100 * mean(searches, &Search::steps), 1},
              {100 * mean(searches, &Search::time), 1},
              {100 * mean(searches, &Search::finals_s) / mean(searches, &Search::seconds), 0},
              {100 * mean(searches, &Search::regret), 2},
              {100 * late, 2},
              {100.0 * close / static_cast<double>(searches.size()), 0},
              elsewhere.first,
              elsewhere.second,
              best.first,
              best.second,
              {1000 * mean(searches, &Search::tuner_s), 1}});
}

ComingLoad::Options read_load(const std::string& text) {
  ComingLoad::Options load;
  if (std::sscanf(text.c_str(), "%lf:%lf:%lf", &load.factor, &load.shortest_s, &load.longest_s) < 1)
    throw std::runtime_error("--load takes FACTOR[:SHORTEST_S:LONGEST_S]: " + text);
  return load;
}

Options read_options(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    const auto value = [&]() -> std::string {
      if (at + 1 == argc) throw std::runtime_error(word + " needs a value");
      return argv[++at];
    };
    if (word == "--tuners") {
      options.tuners.clear();
      std::stringstream list(value());
      for (std::string name; std::getline(list, name, ',');) options.tuners.push_back(name);
    } else if (word == "--seeds") {
      options.num_seeds = std::max(1, std::stoi(value()));
    } else if (word == "--first-seed") {
      options.first_seed = std::stoi(value());
    } else if (word == "--slots") {
      options.num_slots = static_cast<std::size_t>(std::max(1, std::stoi(value())));
    } else if (word == "--share") {
      options.share = std::stod(value());
    } else if (word == "--race") {
      options.races = true;
    } else if (word == "--no-controls") {
      options.has_controls = false;
    } else if (word == "--policy") {
      change_policy_by(value());
    } else if (word == "--finals") {
      options.has_finals = true;
    } else if (word == "--turns") {
      options.has_finals = options.keeps_finalists = true;
    } else if (word == "--means") {
      options.has_means = true;
    } else if (word == "--num-trials") {
      options.num_trials = std::max(1, std::stoi(value()));
    } else if (word == "--slices") {
      options.slices = std::max(1, std::stoi(value()));
    } else if (word == "--build-ms") {
      options.build_s = std::stod(value()) * 1e-3;
    } else if (word == "--load") {
      options.load = read_load(value());
    } else if (word == "--predict") {
      options.predictions.is_anew = true;
    } else if (word == "--predictions-of") {
      options.predictions.profile_path = value();
    } else if (word == "--predictions-of-device") {
      options.predictions.device = value();
    } else if (word == "--bands") {
      options.has_bands = true;
    } else if (word == "--json") {
      options.is_json = true;
    } else {
      options.paths.push_back(word);
    }
  }
  if (options.paths.empty()) throw std::runtime_error("name the tables");
  return options;
}

void print_all_predictions(const std::vector<SearchTable>& spaces, FigureTables& tables) {
  print_predictions_heading(tables);
  for (const SearchTable& table : spaces) {
    PredictedTable predicted{table.name, {}, {}, {}};
    for (std::size_t member = 0; member < table.space.members.size(); ++member) {
      const double worth = worth_of(table, member);
      if (table.space.status(member) != PlanStatus::planned || !(worth > 0)) continue;
      predicted.by_recording.push_back(table.recorded_predictions[member]);
      predicted.by_other.push_back(table.space.predicted_throughput(member).value_or(0));
      predicted.measured.push_back(worth);
    }
    print_predictions(predicted, tables);
  }
}

void run_beside_load(const Options& options, FigureTables& tables) {
  Options quiet = options;
  quiet.load.reset();
  print_load_heading(tables);
  std::vector<LoadedSearch> all;
  for (const SearchTable& table : read_tables(options.paths, options.predictions)) {
    const Grid grid = grid_of(table, options);
    std::vector<LoadedSearch> searches;
    for (const int seed : seeds_of(options))
      searches.push_back({search(table, grid, options.tuners.front(), quiet, seed).simulated,
                          search(table, grid, options.tuners.front(), options, seed).simulated,
                          grid.seconds});
    print_load_row(table.name, searches, tables);
    all.insert(all.end(), searches.begin(), searches.end());
  }
  print_load_row("all", all, tables);
}

void run(const Options& options, FigureTables& tables) {
  const std::vector<SearchTable> spaces = read_tables(options.paths, options.predictions);
  if (options.predictions.is_elsewhere()) print_all_predictions(spaces, tables);
  tables.begin("searches", "",
               {"space", "tuner", "searches", "experiments %", "steps %", "time %",
                "finals: share of time %", "mean regret %", "95th %", "within 1 %",
                "better elsewhere: stated %", "better elsewhere: true %", "the best: stated %",
                "the best: true %", "tuner ms"});
  std::map<std::string, std::vector<Search>> of_tuner;
  for (const SearchTable& table : spaces) {
    const Grid grid = grid_of(table, options);
    for (const std::string& tuner : options.tuners) {
      std::vector<Search> searches;
      for (const int seed : seeds_of(options))
        searches.push_back(search(table, grid, tuner, options, seed));
      print_row(fmt::format("{} ({})", table.name, grid.experiments), tuner, searches, tables);
      auto& all = of_tuner[tuner];
      all.insert(all.end(), searches.begin(), searches.end());
      if (tuner != "race") continue;
      std::vector<Search> ordered;
      for (const int seed : seeds_of(options))
        ordered.push_back(
            search(table, grid, in_order, options, seed, searches[ordered.size()].num_experiments));
      print_row(fmt::format("{} ({})", table.name, grid.experiments), in_order, ordered, tables);
      auto& all_ordered = of_tuner[in_order];
      all_ordered.insert(all_ordered.end(), ordered.begin(), ordered.end());
    }
  }
  for (const std::string& tuner : options.tuners) {
    print_row("all", tuner, of_tuner[tuner], tables);
    if (tuner == "race") print_row("all", in_order, of_tuner[in_order], tables);
  }
  if (!options.has_bands) return;
  std::vector<const SimulatedSearch*> races;
  for (const Search& one : of_tuner["race"]) races.push_back(&one.simulated);
  print_chances(races, tables);
}

}  // namespace
}  // namespace dstune::bench

int main(int argc, char** argv) {
  try {
    const auto options = dstune::bench::read_options(argc, argv);
    dstune::bench::FigureTables tables(options.is_json);
    options.load ? dstune::bench::run_beside_load(options, tables)
                 : dstune::bench::run(options, tables);
    tables.end();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
