// The search of DeepSpeed's engine by forecasts of our own step, without training.
//   verify_bench [--seeds 50] [--wrong 0] [--profile FILE] [--build-ms 220]
//     [--policy GROUP.NAME=FACTOR] [--searched KIND] [--json] SPACE.json TABLE.json [SPACE TABLE
//     ...]
// TABLE is what scripts/tools/deepspeed_fidelity.py has written for the experiments of the space:
// what our own step measured, and several passes of DeepSpeed. A run of the engine draws one of the
// passes. The best one is named by the first, third, … pass, and what an answer is worth beside it
// is judged by the others. --wrong: our own step's times are
// off by factors of the stages, which differ by up to so many percent. --profile: the constants of
// the target's time are those that --profile-out wrote of a job with tiny engines, as each job with
// --verify has them; without it the program's. Time is the steps', warm-up included, and --build-ms
// for each engine (docs/figures/engine.md); it is a share of what the engine takes for all
// members.
// --searched: by this alone (predicted, measured, engine, own); it may repeat. Challengers are
// stopped by a job's rule; those that are not have run to the end.
// Prints a Markdown table, with --json what scripts/figures.py reads.
// What the machine had of its own in each pass is taken out.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/run_again.hpp"
#include "dstune/search/verifying.hpp"
#include "fidelity_table.hpp"
#include "figure_tables.hpp"
#include "simulated_search.hpp"

namespace dstune::bench {
namespace {

/// Steps of a run differ by so much.
constexpr double step_deviation = 0.01;
constexpr int warmup_steps = 3;
constexpr int timed_steps = 5;

/// A space with what is known of each member.
struct Recorded {
  std::string name;
  PlannedSpace space;
  std::vector<ForecastMember> measured;     ///< with what our own step measured
  std::vector<ForecastMember> predicted;    ///< with what was predicted of it
  std::vector<std::vector<double>> passes;  ///< samples/s in DeepSpeed
  TuningOptions tuning;

  /// Mean of every `stride`th pass.
  [[nodiscard]] double mean_of(std::size_t member, std::size_t first, std::size_t stride) const {
    double sum = 0, count = 0;
    for (std::size_t pass = first; pass < passes[member].size(); pass += stride, ++count)
      sum += passes[member][pass];
    return sum / count;
  }
  [[nodiscard]] double truth(std::size_t member) const { return mean_of(member, 0, 1); }
};

double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A pass ran all members one after the other: how fast the machine was in it is taken out, by the
/// middle one of its members' ratios to their means.
void take_out_levels(std::vector<std::vector<double>>& passes) {
  std::vector<double> means;
  std::size_t most = 0;
  for (const std::vector<double>& member : passes) {
    double sum = 0;
    for (const double value : member) sum += value;
    means.push_back(sum / static_cast<double>(member.size()));
    most = std::max(most, member.size());
  }
  for (std::size_t pass = 0; pass < most; ++pass) {
    std::vector<double> ratios;
    for (std::size_t member = 0; member < passes.size(); ++member)
      if (pass < passes[member].size()) ratios.push_back(passes[member][pass] / means[member]);
    const double level = middle_of(ratios);
    for (std::vector<double>& member : passes)
      if (pass < member.size()) member[pass] /= level;
  }
}

Recorded read(const std::string& space_path, const std::string& table_path) {
  const FidelityTable table = read_fidelity_table(space_path, table_path);
  Recorded recorded;
  recorded.name = table_path.substr(table_path.rfind('/') + 1);
  recorded.name.resize(recorded.name.rfind('.'));
  recorded.tuning = table.tuning;
  for (const FidelityRow& row : table.rows) {
    recorded.space.members.push_back(row.member);
    recorded.space.members.back().planned.status = PlanStatus::planned;
    recorded.passes.push_back(row.deepspeed);
    recorded.measured.push_back({.step_s = row.measured_s,
                                 .batch = row.batch,
                                 .precision = row.member.planned.experiment.config.precision,
                                 .overheads = row.overheads});
    recorded.predicted.push_back(recorded.measured.back());
    recorded.predicted.back().step_s = row.predicted_s;
  }
  take_out_levels(recorded.passes);
  recorded.space.planned = recorded.space.members.size();
  recorded.space.baseline = table.baseline.value_or(0);
  return recorded;
}

/// Our own step's times, off by a factor of each stage.
std::vector<ForecastMember> wrong_times(const Recorded& recorded,
                                        std::vector<ForecastMember> members, double percent,
                                        std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> factors;
  for (int stage = 0; stage < 4; ++stage)
    factors.push_back(1 + percent / 100 * std::uniform_real_distribution<double>(0, 1)(random));
  for (std::size_t member = 0; member < members.size(); ++member)
    *members[member].step_s *= factors[static_cast<std::size_t>(
        recorded.space.members[member].planned.experiment.config.zero_stage)];
  return members;
}

Measurement run_of(const Recorded& recorded, std::size_t member, std::mt19937_64& random) {
  const std::vector<double>& passes = recorded.passes[member];
  const double throughput = passes[random() % passes.size()];
  std::normal_distribution<double> noise(0, step_deviation);
  Measurement run;
  run.status = Status::ok;
  run.warmup_steps = warmup_steps;
  for (int step = 0; step < warmup_steps + timed_steps; ++step)
    run.step_times_s.push_back(recorded.measured[member].batch / throughput *
                               std::exp(noise(random)));
  return run;
}

struct Outcome {
  std::size_t answer = 0, runs = 0, to_end = 0, repeats = 0;
  /// Of what is believed, with the passes' means; not a number where nothing is.
  double correlation = std::numeric_limits<double>::quiet_NaN();
  double seconds = 0, finals_s = 0;
};

std::vector<EngineRun> runs_on(const Scoreboard& scoreboard,
                               const std::vector<std::size_t>& members) {
  std::vector<EngineRun> runs;
  for (const std::size_t member : members)
    if (const std::optional<Record>& record = scoreboard.row(member).record)
      runs.emplace_back(member, mean_step_s(record->measurement));
  return runs;
}

std::vector<std::optional<double>> throughputs_of(const std::vector<MemberBelief>& beliefs) {
  std::vector<std::optional<double>> throughputs;
  for (const MemberBelief& belief : beliefs) throughputs.push_back(belief.prediction.throughput);
  return throughputs;
}

/// `forecast`: empty where nothing is known of the engine before it runs.
Outcome search(const Recorded& recorded, const std::vector<ForecastMember>& forecast,
               const TargetConstants& constants, double build_s, std::int64_t seed) {
  SimulatedSpace simulated{recorded.space, recorded.tuning, {}, {}};
  for (std::size_t member = 0; member < recorded.passes.size(); ++member)
    simulated.truth.push_back(recorded.truth(member));
  simulated.run = [&](std::size_t member, double, std::mt19937_64& random) {
    return run_of(recorded, member, random);
  };
  Outcome outcome;
  SimulationOptions options{.tuner = "race",
                            .races = true,
                            .races_early = true,
                            .build_s = build_s,
                            .final_rounds = final_rounds_beside()};
  std::vector<std::optional<double>> last;
  if (!forecast.empty()) {
    options.make_tuner = [&](const TuningOptions& tuning, const Scoreboard& scoreboard) {
      const auto believe = [&](const std::vector<std::size_t>& ran) {
        auto beliefs = believed_in_engine(forecast, runs_on(scoreboard, ran), constants);
        last = throughputs_of(beliefs);
        return beliefs;
      };
      return make_verifying_tuner(recorded.space, tuning, believe);
    };
  }
  const SimulatedSearch done = simulate(simulated, options, seed);
  outcome.answer = done.answer;
  outcome.runs = done.experiments;
  outcome.to_end = done.experiments - done.stopped;
  outcome.repeats = done.runs_again;
  outcome.seconds = done.seconds;
  outcome.finals_s = done.finals_s;
  if (!last.empty()) {
    std::vector<double> believed, truth;
    for (std::size_t member = 0; member < last.size(); ++member) {
      believed.push_back(last[member].value_or(0));
      truth.push_back(simulated.truth[member]);
    }
    outcome.correlation = rank_correlation(believed, truth).value_or(0);
  }
  return outcome;
}

std::size_t best_by(const Recorded& recorded, const std::vector<std::optional<double>>& values) {
  std::size_t best = 0;
  for (std::size_t member = 1; member < recorded.passes.size(); ++member)
    if (values[member].value_or(0) > values[best].value_or(0)) best = member;
  return best;
}

/// The standard error of four runs there, relative: 1 % at least, 2 % at most.
double tolerance(const Recorded& recorded) {
  double squares = 0, freedom = 0;
  for (const std::vector<double>& passes : recorded.passes) {
    double mean = 0;
    for (const double value : passes) mean += std::log(value) / static_cast<double>(passes.size());
    for (const double value : passes) squares += std::pow(std::log(value) - mean, 2);
    freedom += static_cast<double>(passes.size()) - 1;
  }
  return std::clamp(std::sqrt(squares / freedom / 4), 0.01, 0.02);
}

/// How a space is searched; the name is --searched's.
using Kinds = std::set<std::string>;
const Kinds all_kinds = {"predicted", "measured", "engine", "own"};

/// Prints a row for each kind. Returns that of the space: how far the baseline is below the best,
/// how near is near enough, and how passes rank each other.
std::vector<Figure> print(const Recorded& recorded, const TargetConstants& constants, int num_seeds,
                          double wrong, double build_s, const Kinds& kinds, FigureTables& tables) {
  const std::size_t count = recorded.passes.size();
  std::vector<std::optional<double>> truth(count);
  std::vector<double> odd, even;
  double grid_s = 0;
  for (std::size_t member = 0; member < count; ++member) {
    truth[member] = recorded.truth(member);
    odd.push_back(recorded.mean_of(member, 0, 2));
    even.push_back(recorded.mean_of(member, 1, 2));
    grid_s += build_s + (warmup_steps + timed_steps) * recorded.measured[member].batch /
                            recorded.truth(member);
  }
  // The best is named by half of the passes, and judged by the others as the answer is.
  const std::size_t best = best_by(recorded, {odd.begin(), odd.end()});
  const double allowed = tolerance(recorded);
  const auto regret = [&](std::size_t answer) { return 1 - even[answer] / even[best]; };
  const auto share_of = [&](double members) { return 100 * members / static_cast<double>(count); };
  const auto row = [&](const char* kind, const char* how, const auto& outcome_of) {
    if (!kinds.contains(kind)) return;
    int close = 0;
    double sum = 0, worst = -1, runs = 0, repeats = 0, correlation = 0, seconds = 0, finals_s = 0;
    double to_end = 0;
    std::size_t most = 0, most_to_end = 0, most_repeats = 0;
    for (int seed = 0; seed < num_seeds; ++seed) {
      const Outcome one = outcome_of(seed);
      const double lost = regret(one.answer);
      close += lost <= allowed ? 1 : 0;
      sum += lost / num_seeds;
      worst = std::max(worst, lost);
      runs += static_cast<double>(one.runs) / num_seeds;
      to_end += static_cast<double>(one.to_end) / num_seeds;
      repeats += static_cast<double>(one.repeats) / num_seeds;
      correlation += one.correlation / num_seeds;
      seconds += one.seconds / num_seeds;
      finals_s += one.finals_s / num_seeds;
      most = std::max(most, one.runs);
      most_to_end = std::max(most_to_end, one.to_end);
      most_repeats = std::max(most_repeats, one.repeats);
    }
    tables.row({fmt::format("{} ({})", recorded.name, count),
                how,
                {runs, 1},
                most,
                {share_of(to_end), 1},
                {share_of(static_cast<double>(most_to_end)), 1},
                {repeats, 1},
                most_repeats,
                {100 * (seconds - finals_s) / grid_s, 1},
                {100 * seconds / grid_s, 1},
                {seconds > 0 ? 100 * finals_s / seconds : 0, 0},
                {100 * sum, 2},
                {100 * worst, 2},
                close,
                num_seeds,
                {correlation, 3}});
  };
  const auto wrong_by = [&](const std::vector<ForecastMember>& members, int seed) {
    return wrong_times(recorded, members, wrong, static_cast<std::uint64_t>(seed));
  };
  row("predicted", "predictions", [&](int seed) {
    return search(recorded, wrong_by(recorded.predicted, seed), constants, build_s, seed);
  });
  row("measured", "runs of the built-in step", [&](int seed) {
    return search(recorded, wrong_by(recorded.measured, seed), constants, build_s, seed);
  });
  row("engine", "the engine alone",
      [&](int seed) { return search(recorded, {}, constants, build_s, seed); });
  row("own", "the built-in step alone", [&](int seed) {
    const auto believed =
        throughputs_of(believed_in_engine(wrong_by(recorded.measured, seed), {}, constants));
    return Outcome{.answer = best_by(recorded, believed)};
  });
  return {fmt::format("{} ({})", recorded.name, count),
          {100 * regret(*recorded.space.baseline), 2},
          {100 * allowed, 1},
          {rank_correlation(odd, even).value_or(0), 3}};
}

}  // namespace
}  // namespace dstune::bench

int main(int argc, char** argv) {
  int num_seeds = 50;
  double wrong = 0, build_s = 0.22;
  dstune::TargetConstants constants = dstune::target_constants(false);
  bool is_json = false;
  std::vector<std::string> paths;
  dstune::bench::Kinds kinds;
  try {
    for (int at = 1; at < argc; ++at) {
      const std::string word = argv[at];
      const bool is_option = word == "--seeds" || word == "--wrong" || word == "--profile" ||
                             word == "--policy" || word == "--build-ms" || word == "--searched";
      if (is_option && at + 1 == argc) throw std::runtime_error(word + " needs a value");
      if (word == "--seeds")
        num_seeds = std::max(1, std::stoi(argv[++at]));
      else if (word == "--wrong")
        wrong = std::stod(argv[++at]);
      else if (word == "--build-ms")
        build_s = std::stod(argv[++at]) * 1e-3;
      else if (word == "--policy")
        dstune::bench::change_policy_by(argv[++at]);
      else if (word == "--searched")
        kinds.insert(argv[++at]);
      else if (word == "--profile")
        constants = dstune::bench::constants_in(argv[++at]);
      else if (word == "--json")
        is_json = true;
      else
        paths.push_back(word);
    }
    for (const std::string& kind : kinds)
      if (!dstune::bench::all_kinds.contains(kind))
        throw std::runtime_error("--searched takes predicted, measured, engine or own: " + kind);
    if (kinds.empty()) kinds = dstune::bench::all_kinds;
    if (paths.empty() || paths.size() % 2 != 0)
      throw std::runtime_error("name spaces, each with its table");
    dstune::bench::FigureTables tables(is_json);
    tables.begin("engine", "",
                 {"space", "searched by", "engine runs: mean", "engine runs: most",
                  "to the end %: mean", "to the end %: most", "repeats: mean", "repeats: most",
                  "time before finals %", "time %", "finals: share of time %", "mean regret %",
                  "worst %", "as good as the best", "searches", "rank correlation"});
    std::vector<std::vector<dstune::bench::Figure>> spaces;
    for (std::size_t at = 0; at < paths.size(); at += 2)
      spaces.push_back(dstune::bench::print(dstune::bench::read(paths[at], paths[at + 1]),
                                            constants, num_seeds, wrong, build_s, kinds, tables));
    tables.begin(
        "spaces", "",
        {"space", "the baseline: below the best %", "near enough %", "rank correlation of passes"});
    for (const auto& space : spaces) tables.row(space);
    tables.end();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
