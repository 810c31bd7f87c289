// How near times that are measured here come to DeepSpeed's in the target's time:
//   target_figures counts SPACE.json TABLE.json          what the plans count, as CSV
//   target_figures fit SPACE.json TABLE.json ...         constants, fitted to all tables together
//   target_figures hierarchy SPACE.json TABLE.json ... the same, with factors of the host, the
//                                                        network and the kernels for each table in
//                                                        fp32, and how far each cost may be off
//   target_figures left-out SPACE.json TABLE.json ...    each table in fp32 by a fit to all others
//   target_figures scales SPACE.json TABLE.json ...      the scale of each precision beside the
//                                                        program's costs, by all tables together
//   target_figures factors SPACE.json TABLE.json ...     what the host, the network and the kernels
//                                                        of each table take beside the constants
//   target_figures judge SPACE.json TABLE.json ...       each table by the program's constants
//   target_figures calibrate SPACE.json TABLE.json ...   beside runs of the user's own
// With `--json` before the mode judge, left-out, factors and calibrate print tables for
// scripts/figures.py. With `--host FACTOR` all costs of the host take so much longer. With
// `--profile FILE` the constants are those that --profile-out wrote of a job
// that measured them (dstune.target.measure), and not the program's, which are those of GPUs where
// the first table names a "device". TABLE is what
// scripts/tools/deepspeed_fidelity.py has written for the experiments of the space. Runs to
// calibrate with are drawn again and again; what is said is of the configurations left out.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dstune/base/archive.hpp"
#include "dstune/ranking/calibration.hpp"
#include "fidelity_table.hpp"
#include "json_tables.hpp"
#include "target_fits.hpp"
#include "target_tables.hpp"

namespace dstune {
namespace {

using bench::Configuration;
using bench::Configurations;
using bench::Estimate;
using bench::Figures;
using bench::figures_of;
using bench::in_target;
using bench::JsonTable;
using bench::points_of;
using bench::Table;

constexpr int num_draws = 1000;

void print_counts(const Configurations& all) {
  std::printf("name,stage,precision,batch,measured_s,predicted_s,deepspeed");
  for (int each = 0; each < num_overheads; ++each)
    std::printf(",%s", std::string(to_text(static_cast<Overhead>(each))).c_str());
  std::printf("\n");
  for (const Configuration& one : all) {
    std::printf("%s,%d,%s,%g,%.6g,%.6g,", one.name.c_str(), one.stage,
                std::string(to_text(one.precision)).c_str(), one.batch, one.measured_s,
                one.predicted_s);
    for (std::size_t pass = 0; pass < one.deepspeed.size(); ++pass)
      std::printf("%s%g", pass == 0 ? "" : " ", one.deepspeed[pass]);
    for (const double count : one.overheads) std::printf(",%g", count);
    std::printf("\n");
  }
}

// Judging.

/// How near an estimate comes to DeepSpeed in a table; the best is named by the odd passes, and
/// compared by the even ones.
struct Judged {
  const char* title;
  Figures figures;
  double below_best = 0, above_baseline = 0;
};

std::vector<Judged> judge(const Table& table, const TargetConstants& target) {
  const Configurations& all = table.all;
  const TimeCalibration& constants = target.time;
  const auto odd = [](const Configuration& one) { return one.throughput(0, 2); };
  const auto even = [&](const Configuration& one) {
    return one.throughput(table.has_passes() ? 1 : 0, 2);
  };
  const auto best = *std::ranges::max_element(all, {}, odd);
  std::vector<Judged> judged;
  const auto add = [&](const char* title, const Estimate& estimate, bool is_odd = false) {
    const Figures figures =
        is_odd ? figures_of(all, estimate, true, 1, 2) : figures_of(all, estimate, true);
    const Configuration& answer = all[figures.best];
    judged.push_back({title, figures, 1 - even(answer) / even(best),
                      even(answer) / even(all[table.baseline]) - 1});
  };
  if (table.has_passes())
    add(
        "DeepSpeed's odd passes, of its even ones",
        [&](const Configuration& one) { return one.batch / odd(one); }, true);
  add("measured here", [](const Configuration& one) { return one.measured_s; });
  add("... in the target's time", in_target(constants, &Configuration::measured_s));
  if (std::ranges::all_of(all, [](const Configuration& one) { return one.predicted_s > 0; })) {
    add("predicted here", [](const Configuration& one) { return one.predicted_s; });
    add("... in the target's time", in_target(constants, &Configuration::predicted_s));
  }
  return judged;
}

void print_judged(const Table& table, const TargetConstants& target) {
  const Configurations& all = table.all;
  const auto best = *std::ranges::max_element(
      all, {}, [](const Configuration& one) { return one.throughput(0, 2); });
  std::vector<double> throughputs;
  for (const Configuration& one : all) throughputs.push_back(one.throughput());
  std::ranges::sort(throughputs);
  std::printf(
      "%zu configurations. DeepSpeed's best by the odd passes, %s, is %.1f %% above the median.\n\n"
      "| times | rank correlation | mean error after one scale | answer | slower than the best "
      "| faster than the baseline |\n| --- | --- | --- | --- | --- | --- |\n",
      all.size(), best.name.c_str(),
      100 * (best.throughput() / throughputs[throughputs.size() / 2] - 1));
  for (const Judged& one : judge(table, target))
    std::printf("| %s | %.3f | %.1f %% | `%s` | %.1f %% | %.1f %% |\n", one.title,
                one.figures.correlation, 100 * one.figures.error,
                all[one.figures.best].name.c_str(), 100 * one.below_best, 100 * one.above_baseline);
  std::printf("\n");
}

/// Errors and what an answer loses are in percent.
JsonTable table_of_judged(const std::vector<Table>& tables, const TargetConstants& target) {
  JsonTable judged{"judged", {"table", "members", "passes"}};
  for (const std::string of : {"again", "own", "expected", "predicted_here", "predicted"})
    for (const char* const figure : {"", "_error", "_regret", "_below", "_above"})
      judged.columns.push_back(of + figure);
  for (const Table& table : tables) {
    std::vector<json::Value> row = {table.name, table.all.size(),
                                    table.all.front().deepspeed.size()};
    if (!table.has_passes()) row.insert(row.end(), 5, nullptr);
    for (const Judged& one : judge(table, target))
      row.insert(row.end(),
                 {one.figures.correlation, 100 * one.figures.error, 100 * one.figures.regret,
                  100 * one.below_best, 100 * one.above_baseline});
    row.resize(judged.columns.size());
    judged.rows.push_back(std::move(row));
  }
  return judged;
}

TimeCalibration with_host_costs(TimeCalibration time, double factor) {
  for (std::size_t each = 0; each < num_overheads; ++each)
    if (is_of_host(static_cast<Overhead>(each))) time.costs_s[each] *= factor;
  return time;
}

// Runs of the user's own.

struct Draw {
  Configurations runs, others;
};

/// `num_runs` of them, all of different stages or any.
Draw draw(Configurations all, std::size_t num_runs, bool stages_differ, std::mt19937& random) {
  while (true) {
    for (std::size_t place = 0; place < num_runs; ++place)
      std::swap(all[place], all[place + random() % (all.size() - place)]);
    std::set<int> stages;
    for (std::size_t place = 0; place < num_runs; ++place) stages.insert(all[place].stage);
    if (stages_differ && stages.size() < num_runs) continue;
    const auto cut = all.begin() + static_cast<std::ptrdiff_t>(num_runs);
    return {{all.begin(), cut}, {cut, all.end()}};
  }
}

/// Means of the draws, of what was left out.
struct Calibrated {
  std::size_t num_runs;
  bool stages_differ;
  Figures none, without, with;
  double low = 0;  ///< of the draws 5 % have a lower correlation
};

Calibrated calibrate(const Configurations& all, std::size_t num_runs, bool stages_differ,
                     const TargetConstants& constants) {
  std::mt19937 random(1);
  const CalibrationPrior known = prior_of(constants);
  Calibrated found{num_runs, stages_differ, {}, {}, {}};
  std::vector<double> correlations;
  const auto add = [](Figures& sum, const Figures& one) {
    sum.correlation += one.correlation / num_draws;
    sum.regret += one.regret / num_draws;
    sum.error += one.error / num_draws;
  };
  for (int count = 0; count < num_draws; ++count) {
    const Draw drawn = draw(all, num_runs, stages_differ, random);
    const auto figures = [&](const TimeCalibration& fit, bool scales) {
      return figures_of(drawn.others, in_target(fit, &Configuration::measured_s), scales);
    };
    add(found.none, figures(known.mean, true));
    add(found.without, figures(fit_time(points_of(drawn.runs), unknown_target()), false));
    const Figures one = figures(fit_time(points_of(drawn.runs), known), false);
    add(found.with, one);
    correlations.push_back(one.correlation);
  }
  std::ranges::sort(correlations);
  found.low = correlations[correlations.size() / 20];
  return found;
}

std::vector<Calibrated> calibrate(const Configurations& all, const TargetConstants& constants) {
  std::vector<Calibrated> found;
  for (const std::size_t num_runs : {1U, 2U, 4U})
    found.push_back(calibrate(all, num_runs, false, constants));
  std::set<int> stages;
  for (const Configuration& one : all) stages.insert(one.stage);
  if (stages.size() > 1) found.push_back(calibrate(all, 2, true, constants));
  return found;
}

void print_calibrated(const Configurations& all, const TargetConstants& constants) {
  std::printf(
      "Of %zu, those left out: rank correlation, regret, mean error of times.\n\n"
      "| runs | constants alone | runs alone | constants and runs | correlation, 5 %% of the draws "
      "below |\n| --- | --- | --- | --- | --- |\n",
      all.size());
  for (const Calibrated& found : calibrate(all, constants)) {
    std::printf("| %zu%s", found.num_runs, found.stages_differ ? ", each of another stage" : "");
    for (const Figures& one : {found.none, found.without, found.with})
      std::printf(" | %.3f, %.1f %%, %.1f %%", one.correlation, 100 * one.regret, 100 * one.error);
    std::printf(" | %.3f |\n", found.low);
  }
  std::printf("\n");
}

JsonTable table_of_calibrated(const std::vector<Table>& tables, const TargetConstants& constants) {
  JsonTable calibrated{"calibrated",
                       {"table", "runs", "constants", "constants_below", "constants_error", "alone",
                        "alone_below", "alone_error", "both", "both_below", "both_error", "low"}};
  for (const Table& table : tables)
    for (const Calibrated& found : calibrate(table.all, constants)) {
      if (found.stages_differ) continue;
      std::vector<json::Value> row = {table.name, found.num_runs};
      for (const Figures& one : {found.none, found.without, found.with})
        row.insert(row.end(), {one.correlation, 100 * one.regret, 100 * one.error});
      row.push_back(found.low);
      calibrated.rows.push_back(std::move(row));
    }
  return calibrated;
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  using namespace dstune;
  const char* const program = argv[0];
  std::optional<std::string> profile, host;
  const bool in_json = argc > 1 && std::string(argv[1]) == "--json";
  if (in_json) --argc, ++argv;
  for (const auto& [option, value] :
       {std::pair("--profile", &profile), std::pair("--host", &host)}) {
    if (argc <= 2 || std::string(argv[1]) != option) continue;
    *value = argv[2];
    argc -= 2;
    argv += 2;
  }
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::set<std::string> modes = {"counts", "fit",     "hierarchy", "left-out",
                                       "scales", "factors", "judge",     "calibrate"};
  if (!modes.contains(mode) || argc < 4 || argc % 2 != 0) {
    std::fprintf(stderr,
                 "usage: %s [--json] [--profile FILE] [--host FACTOR] "
                 "counts|fit|hierarchy|left-out|scales|factors|judge|calibrate "
                 "SPACE.json TABLE.json [SPACE TABLE ...]\n",
                 program);
    return 2;
  }
  try {
    std::vector<Table> tables;
    for (int at = 2; at < argc; at += 2)
      tables.push_back(bench::read_table(argv[at], argv[at + 1]));
    TargetConstants constants =
        profile ? bench::constants_in(*profile) : target_constants(tables.front().is_on_gpus);
    if (profile && !in_json)
      std::printf("Constants measured by %d tiny engines, off by %.1f %% of their times:\n%s\n\n",
                  constants.num_engines, 100 * constants.fit_error,
                  json::write(constants).dump().c_str());
    if (host) constants.time = with_host_costs(constants.time, std::stod(*host));
    if (in_json) {
      if (mode == "judge") bench::print_json_tables({table_of_judged(tables, constants)});
      if (mode == "left-out")
        bench::print_json_tables(bench::tables_of_left_out(tables, constants.time));
      if (mode == "factors")
        bench::print_json_tables({bench::table_of_factors(tables, constants.time)});
      if (mode == "calibrate") bench::print_json_tables({table_of_calibrated(tables, constants)});
      return 0;
    }
    if (mode == "fit") bench::print_constants(tables);
    if (mode == "hierarchy") bench::print_hierarchy(tables);
    if (mode == "left-out") bench::print_left_out(tables, constants.time);
    if (mode == "scales") bench::print_scales(tables, constants.time);
    if (mode == "factors") bench::print_factors(tables, constants.time);
    for (const Table& table : tables) {
      if (mode == "counts") print_counts(table.all);
      if (mode == "judge") print_judged(table, constants);
      if (mode == "calibrate") print_calibrated(table.all, constants);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
