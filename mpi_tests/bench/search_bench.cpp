// Searches recorded spaces again, without training, in simulated time:
//   search_bench [--tuners gridsearch,random,model_based,race] [--seeds 50] [--slots 1]
//                [--share 15] [--race] [--finals] [--predict] mpi_tests/bench/tables/NAME.json ...
// A tuner asks and is told through the interface that a job uses. Every trial that is run draws its
// timed steps from those that were recorded, in blocks that keep neighbours together, so that no
// two searches see the same figures; what a choice is worth is its recorded mean. --share: the
// percent of the members that random may run, which has no rule by which it stops. --race: trials
// are stopped where they have lost to the best so far, by a job's rule (metric: throughput).
// --finals: the finalists are measured again and the answer is chosen as a job does; the rounds
// count as steps. --predict: predictions are made anew from the profile of the recording. Prints a
// Markdown table.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "dstune/core/interval.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/search/tuner.hpp"
#include "search_table.hpp"

namespace dstune::bench {
namespace {

/// Steps that stay together in a draw.
constexpr std::size_t block_steps = 4;

struct Options {
  std::vector<std::string> tuners = {"gridsearch", "random", "model_based", "race"};
  int num_seeds = 50;
  std::size_t num_slots = 1;
  double share = 15;
  bool predict_anew = false;
  bool races = false;
  bool has_finals = false;
  std::vector<std::string> paths;
};

/// One search, as shares of what the grid takes and of the best.
struct Search {
  double experiments = 0, steps = 0, time = 0;
  double regret = 0;
  double tuner_s = 0;  ///< the tuner's own time, real
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

std::optional<MetricValue> value_of(const SearchTable& table, std::size_t index,
                                    const Measurement& measurement) {
  const Experiment& experiment = table.space.members[index].planned.experiment;
  const int size = experiment.shape.size();
  return value_so_far(measurement, table.job.tuning.metric, global_batch(experiment.config, size),
                      size);
}

/// What a challenger is raced against: the best so far, in the challenger's step times.
IncumbentEstimate estimate_of(const Measurement& incumbent, double batch_ratio) {
  const MeanEstimate step = estimate_mean(timed_steps_s(incumbent));
  const double error = step.standard_error / step.mean;
  return estimate_incumbent({step.mean * batch_ratio}, error * error, pooled_spread({}));
}

/// Ends a trial at the look at which it has lost.
void race(const IncumbentEstimate& incumbent, Measurement& trial) {
  const auto first = static_cast<std::size_t>(trial.warmup_steps);
  const std::vector<double> all = timed_steps_s(trial);
  for (const std::size_t look : race_looks) {
    if (look >= all.size()) return;
    if (!has_lost_race({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(look)}, incumbent))
      continue;
    trial.step_times_s.resize(first + look);
    trial.status = Status::raced_out;
    return;
  }
}

/// Timed steps of one of a member's runs, on average.
std::size_t steps_of_run(const SearchTable& table, std::size_t row) {
  const Measurement& all = table.measurements[row];
  const auto first = static_cast<std::size_t>(all.warmup_steps);
  if (all.step_times_s.size() <= first) return 0;
  return std::max<std::size_t>(1, (all.step_times_s.size() - first) / table.runs[row]);
}

/// A trial: as many steps as a run had, in blocks from anywhere among the recorded.
Measurement drawn(const SearchTable& table, std::size_t row, std::mt19937_64& random) {
  Measurement trial = table.measurements[row];
  const std::vector<double> recorded = timed_steps_s(trial);
  const auto first = static_cast<std::size_t>(trial.warmup_steps);
  if (recorded.empty()) return trial;
  trial.step_times_s.resize(first + steps_of_run(table, row));
  for (std::size_t step = 0, from = 0; first + step < trial.step_times_s.size(); ++step, ++from) {
    if (step % block_steps == 0) from = random() % recorded.size();
    trial.step_times_s[first + step] = recorded[from % recorded.size()];
  }
  return trial;
}

Grid grid_of(const SearchTable& table) {
  Grid grid;
  for (std::size_t index = 0; index < table.measurements.size(); ++index) {
    if (table.space.members[index].planned.status != PlanStatus::planned) continue;
    const Measurement& measured = table.measurements[index];
    ++grid.experiments;
    grid.steps += static_cast<double>(measured.warmup_steps) +
                  static_cast<double>(steps_of_run(table, index));
    grid.seconds += sum(measured.step_times_s) / static_cast<double>(table.runs[index]);
    if (const auto value = value_of(table, index, measured))
      grid.best = std::max(grid.best, value->value);
  }
  return grid;
}

Search search(const SearchTable& table, const Grid& grid, const std::string& type,
              const Options& options, std::int64_t seed) {
  TuningOptions tuning = table.job.tuning;
  tuning.tuner_type = type;
  tuning.seed = seed;
  PlannedSpace space = table.space;
  std::vector<std::size_t> row_of(space.members.size());
  for (std::size_t index = 0; index < row_of.size(); ++index) row_of[index] = index;
  std::mt19937_64 random(static_cast<std::uint64_t>(seed) + 1);
  if (type == "random") {  // its order and its cap are the plan's
    for (std::size_t left = row_of.size(); left > 1; --left)
      std::swap(row_of[left - 1], row_of[random() % left]);
    double trials_left = std::max(1.0, std::floor(grid.experiments * options.share / 100));
    for (std::size_t index = 0; index < row_of.size(); ++index) {
      space.members[index] = table.space.members[row_of[index]];
      PlanStatus& status = space.members[index].planned.status;
      if (status == PlanStatus::planned && trials_left-- <= 0) status = PlanStatus::pruned;
    }
  }

  struct Running {
    double ends_at_s = 0;
    std::size_t index = 0;
    Measurement trial;
  };
  using Clock = std::chrono::steady_clock;
  Clock::duration spent{};
  const auto timed = [&](auto&& work) {
    const auto began = Clock::now();
    auto result = work();
    spent += Clock::now() - began;
    return result;
  };
  Search result;
  std::vector<Running> running;
  double now_s = 0;
  std::optional<Measurement> incumbent;
  double incumbent_batch = 0;
  const auto batch_of = [&](std::size_t row) {
    const Experiment& experiment = table.space.members[row].planned.experiment;
    return static_cast<double>(global_batch(experiment.config, experiment.shape.size()));
  };
  double best_seen = 0;
  std::vector<Row> rows;
  for (const PlannedMember& member : table.space.members) rows.push_back({member.planned});
  Scoreboard board({.metric = tuning.metric}, std::move(rows));
  const auto tuner = make_tuner(type, space, tuning);
  for (;;) {
    while (running.size() < options.num_slots) {
      const auto index = timed([&] { return tuner->next(); });
      if (!index) break;
      Running next{now_s, *index, drawn(table, row_of[*index], random)};
      if (options.races && incumbent)
        race(estimate_of(*incumbent, batch_of(row_of[*index]) / incumbent_batch), next.trial);
      next.ends_at_s += sum(next.trial.step_times_s);
      ++result.experiments;
      result.steps += static_cast<double>(next.trial.step_times_s.size());
      running.push_back(std::move(next));
    }
    if (running.empty()) break;
    const auto first = std::min_element(
        running.begin(), running.end(),
        [](const auto& one, const auto& other) { return one.ends_at_s < other.ends_at_s; });
    const Running ended = std::move(*first);
    running.erase(first);
    now_s = ended.ends_at_s;
    const std::size_t row = row_of[ended.index];
    const auto value = value_of(table, row, ended.trial);
    timed([&] {
      tuner->observe(ended.index, {ended.trial.status, value});
      return 0;
    });
    if (ended.trial.status == Status::ok && value && value->value > best_seen) {
      best_seen = value->value;
      incumbent = ended.trial;
      incumbent_batch = batch_of(row);
    }
    Record record;
    record.experiment = board.row(row).planned.experiment;
    record.measurement = ended.trial;
    board.record(row, std::move(record));
  }
  if (options.has_finals) {
    board.begin_finals(finalists(board));
    while (const auto next = next_final_run(board)) {
      Repeat repeat;
      repeat.kind = RepeatKind::final_round;
      repeat.round = next->round;
      repeat.measurement = drawn(table, next->row, random);
      result.steps += static_cast<double>(repeat.measurement.step_times_s.size());
      now_s += sum(repeat.measurement.step_times_s);
      board.repeat(next->row, std::move(repeat));
    }
    board.end_finals();
  }
  const std::size_t answer = board.best().value();
  const double best_true = value_of(table, answer, table.measurements[answer])->value;
  result.time = now_s / grid.seconds;
  result.experiments /= grid.experiments;
  result.steps /= grid.steps;
  result.regret = 1 - best_true / grid.best;
  result.tuner_s = std::chrono::duration<double>(spent).count();
  return result;
}

double mean(const std::vector<Search>& searches, double Search::*member) {
  double total = 0;
  for (const Search& one : searches) total += one.*member;
  return total / static_cast<double>(searches.size());
}

void print_row(const std::string& space, const std::string& tuner,
               const std::vector<Search>& searches) {
  std::vector<double> regrets;
  int close = 0;
  for (const Search& one : searches) {
    regrets.push_back(one.regret);
    close += one.regret <= 0.01 ? 1 : 0;
  }
  std::sort(regrets.begin(), regrets.end());
  const double late = regrets[(regrets.size() * 95 + 99) / 100 - 1];
  std::printf("| %s | %s | %.1f | %.1f | %.1f | %.2f | %.2f | %.0f | %.1f |\n", space.c_str(),
              tuner.c_str(), 100 * mean(searches, &Search::experiments),
              100 * mean(searches, &Search::steps), 100 * mean(searches, &Search::time),
              100 * mean(searches, &Search::regret), 100 * late,
              100.0 * close / static_cast<double>(searches.size()),
              1000 * mean(searches, &Search::tuner_s));
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
    } else if (word == "--slots") {
      options.num_slots = static_cast<std::size_t>(std::max(1, std::stoi(value())));
    } else if (word == "--share") {
      options.share = std::stod(value());
    } else if (word == "--race") {
      options.races = true;
    } else if (word == "--finals") {
      options.has_finals = true;
    } else if (word == "--predict") {
      options.predict_anew = true;
    } else {
      options.paths.push_back(word);
    }
  }
  if (options.paths.empty()) throw std::runtime_error("name the tables");
  return options;
}

void run(const Options& options) {
  std::printf(
      "| space (members) | tuner | experiments %% | steps %% | time %% | mean regret %% | 95th %% "
      "| "
      "within 1 %% | tuner ms |\n|---|---|---|---|---|---|---|---|---|\n");
  std::map<std::string, std::vector<Search>> of_tuner;
  for (const std::string& path : options.paths) {
    if (path.ends_with(".made.json")) continue;  // beside a table
    const SearchTable table = read_table(path, options.predict_anew);
    const Grid grid = grid_of(table);
    for (const std::string& tuner : options.tuners) {
      std::vector<Search> searches;
      for (int seed = 0; seed < options.num_seeds; ++seed)
        searches.push_back(search(table, grid, tuner, options, seed));
      print_row(fmt::format("{} ({})", table.name, grid.experiments), tuner, searches);
      auto& all = of_tuner[tuner];
      all.insert(all.end(), searches.begin(), searches.end());
    }
  }
  for (const std::string& tuner : options.tuners) print_row("all", tuner, of_tuner[tuner]);
}

}  // namespace
}  // namespace dstune::bench

int main(int argc, char** argv) {
  try {
    dstune::bench::run(dstune::bench::read_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
