// How near times that are measured here come to DeepSpeed's in the target's time:
//   target_figures counts SPACE.json TABLE.json          what the plans count, as CSV
//   target_figures fit SPACE.json TABLE.json ...         constants, fitted to all tables together
//   target_figures hierarchy SPACE.json TABLE.json ... the same, with factors of the host, the
//                                                        network and the kernels for each table in
//                                                        fp32, and how far each cost may be off
//   target_figures left-out SPACE.json TABLE.json ...    each table in fp32 by a fit to all others
//   target_figures scales SPACE.json TABLE.json ...      the scale of each precision beside the
//                                                        program's costs, by all tables together
//   target_figures judge SPACE.json TABLE.json ...       each table by the program's constants
//   target_figures calibrate SPACE.json TABLE.json ...   beside runs of the user's own
// With `--profile FILE` before the mode the constants are those that --profile-out wrote of a job
// that measured them (dstune.target.measure), and not the program's, which are those of GPUs where
// the first table names a "device". TABLE is what
// scripts/tools/deepspeed_fidelity.py has written for the experiments of the space. Runs to
// calibrate with are drawn again and again; what is said is of the configurations left out.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/archive.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "fidelity_table.hpp"
#include "hierarchical_fit.hpp"

namespace dstune {
namespace {

constexpr int num_draws = 1000;

struct Configuration {
  std::string name;
  int stage = 0;
  Precision precision = Precision::fp32;
  double batch = 0;
  std::vector<double> deepspeed;  ///< samples/s, of each pass
  double measured_s = 0;
  double predicted_s = 0;  ///< 0: it was not predicted
  Overheads overheads{};

  /// samples/s, the mean of all passes, or of every second one.
  [[nodiscard]] double throughput(std::size_t first = 0, std::size_t stride = 1) const {
    double sum = 0, count = 0;
    for (std::size_t pass = first; pass < deepspeed.size(); pass += stride, ++count)
      sum += deepspeed[pass];
    return sum / count;
  }
  [[nodiscard]] double deepspeed_s() const { return batch / throughput(); }
};
using Configurations = std::vector<Configuration>;

struct Table {
  Configurations all;
  std::size_t baseline = 0;  ///< that takes the first candidate of every list
  bool is_on_gpus = false;
};

Table read_table(const std::string& space_path, const std::string& table_path) {
  const bench::FidelityTable table = bench::read_fidelity_table(space_path, table_path);
  Table found;
  found.baseline = table.baseline.value_or(0);
  found.is_on_gpus = table.is_on_gpus;
  for (const bench::FidelityRow& row : table.rows) {
    const Experiment& experiment = row.member.planned.experiment;
    found.all.push_back({.name = experiment.name,
                         .stage = experiment.config.zero_stage,
                         .precision = experiment.config.precision,
                         .batch = row.batch,
                         .deepspeed = row.deepspeed,
                         .measured_s = row.measured_s,
                         .predicted_s = row.predicted_s,
                         .overheads = row.overheads});
  }
  return found;
}

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

/// Seconds of an optimizer step, by some estimate of DeepSpeed's.
using Estimate = std::function<double(const Configuration&)>;

Estimate in_target(const TimeCalibration& calibration, double Configuration::*here_s) {
  return [=](const Configuration& one) {
    return calibration.target_s(one.*here_s, one.precision, one.overheads);
  };
}

struct Figures {
  double correlation = 0;
  double regret = 0;  ///< how much faster DeepSpeed's best is there than the best by the estimate
  double error = 0;   ///< mean, of times
  std::size_t best = 0;  ///< by the estimate
};

/// `scales`: the error after one common scale. `first`, `stride`: the passes that are the truth.
Figures figures_of(const Configurations& all, const Estimate& estimate, bool scales = false,
                   std::size_t first = 0, std::size_t stride = 1) {
  std::vector<double> estimates, truth, ratios;
  for (const Configuration& one : all) {
    estimates.push_back(one.batch / estimate(one));
    truth.push_back(one.throughput(first, stride));
    ratios.push_back(truth.back() / estimates.back());
  }
  std::vector<double> sorted = ratios;
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  const double median =
      sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  Figures figures;
  for (const double ratio : ratios)
    figures.error += std::abs(ratio / (scales ? median : 1) - 1) / static_cast<double>(all.size());
  figures.correlation = rank_correlation(estimates, truth).value_or(0);
  figures.best = static_cast<std::size_t>(std::ranges::max_element(estimates) - estimates.begin());
  figures.regret = 1 - truth[figures.best] / std::ranges::max(truth);
  return figures;
}

// Constants.

TimeCalibration fit_to(const Configurations& runs, const CalibrationPrior& prior) {
  std::vector<CalibrationPoint> points;
  for (const Configuration& run : runs)
    points.push_back({run.measured_s, run.deepspeed_s(), run.precision, run.overheads});
  return fit_time(points, prior);
}

double square_error(const Configurations& all, const TimeCalibration& fit) {
  const Estimate estimate = in_target(fit, &Configuration::measured_s);
  return std::accumulate(all.begin(), all.end(), 0.0, [&](double sum, const Configuration& one) {
    return sum + std::pow(estimate(one) / one.deepspeed_s() - 1, 2);
  });
}

/// How much the calls of each kind cost beside each other: two ranks on one machine do not tell
/// more than one cost apart. gloo makes a reduce-scatter of a copy, an all-reduce and one more
/// copy.
constexpr std::array<std::pair<Overhead, double>, 5> call_weights{
    {{Overhead::all_reduce_call, 1},
     {Overhead::reduce_call, 1},
     {Overhead::reduce_scatter_call, 2},
     {Overhead::all_gather_call, 1},
     {Overhead::all_to_all_call, 1}}};

/// All calls as so many all-reduces.
Configurations with_one_kind_of_call(Configurations all) {
  for (Configuration& one : all) {
    double calls = 0;
    for (const auto& [kind, weight] : call_weights)
      calls += weight * std::exchange(of(one.overheads, kind), 0);
    of(one.overheads, Overhead::all_reduce_call) = calls;
  }
  return all;
}

/// The scale of 16 bits beside that of fp32 is tried out: fit_time() takes it from the prior.
TimeCalibration fit_constants(const Configurations& runs) {
  const Configurations all = with_one_kind_of_call(runs);
  TimeCalibration best;
  double least = HUGE_VAL;
  const bool has_16_bits = std::ranges::any_of(
      all, [](const Configuration& one) { return one.precision != Precision::fp32; });
  for (double ratio = has_16_bits ? 0.25 : 1; ratio <= (has_16_bits ? 4 : 1); ratio *= 1.01) {
    CalibrationPrior prior = unknown_target();
    prior.mean.scale = {1, ratio, ratio};
    // So many runs say enough by themselves: the prior only decides what they do not tell apart.
    for (double& deviation_s : prior.deviations_s) deviation_s *= 10;
    const TimeCalibration fit = fit_to(all, prior);
    if (const double error = square_error(all, fit); error < least) {
      least = error;
      best = fit;
    }
  }
  const double call_s = of(best.costs_s, Overhead::all_reduce_call);
  for (const auto& [kind, weight] : call_weights) of(best.costs_s, kind) = weight * call_s;
  return best;
}

/// A device behind its host: the longer of the two times changes while the costs do, so the
/// numbers are tried out, one after the other, by ever smaller factors. The network's stay 0.
TimeCalibration fit_behind_host(const Configurations& all, TimeCalibration best) {
  constexpr std::array fitted{Overhead::optimizer_step, Overhead::module_call,
                              Overhead::gradient_hook, Overhead::gathering_hook};
  for (const Overhead each : fitted)
    of(best.costs_s, each) = std::max(of(best.costs_s, each), 1e-5);
  double least = square_error(all, best);
  for (double factor = 2; factor > 1.0005;) {
    const double before = least;
    for (std::size_t place = 0; place <= fitted.size(); ++place) {
      for (const double by : {factor, 1 / factor}) {
        TimeCalibration tried = best;
        if (place == fitted.size()) {
          for (const Precision precision : {Precision::bf16, Precision::fp16})
            tried.scale[static_cast<std::size_t>(precision)] *= by;
        } else {
          of(tried.costs_s, fitted[place]) *= by;
        }
        if (const double error = square_error(all, tried); error < least) {
          least = error;
          best = tried;
        }
      }
    }
    if (least == before) factor = std::sqrt(factor);
  }
  return best;
}

void print_constants(const std::vector<Table>& tables) {
  Configurations all;
  for (const Table& table : tables) all.insert(all.end(), table.all.begin(), table.all.end());
  const TimeCalibration fit = tables.front().is_on_gpus
                                  ? fit_behind_host(all, target_constants(true).time)
                                  : fit_constants(all);
  json::Value scale = json::Value::object(), costs_s = json::Value::object();
  for (std::size_t each = 0; each < num_precisions; ++each)
    scale[std::string(to_text(static_cast<Precision>(each)))] = fit.scale[each];
  for (std::size_t each = 0; each < fit.costs_s.size(); ++each)
    costs_s[std::string(to_text(static_cast<Overhead>(each)))] = fit.costs_s[each];
  std::printf("%s\n", json::Value{{"scale", scale}, {"costs_s", costs_s}}.dump(1).c_str());
  for (const Table& table : tables) {
    const Figures figures = figures_of(table.all, in_target(fit, &Configuration::measured_s));
    std::printf("%zu configurations: rank correlation %.3f, mean error %.1f %%, regret %.1f %%\n",
                table.all.size(), figures.correlation, 100 * figures.error, 100 * figures.regret);
  }
}

// With factors of each table.

std::vector<CalibrationPoint> points_of(const Configurations& all) {
  std::vector<CalibrationPoint> points;
  for (const Configuration& one : all)
    points.push_back({one.measured_s, one.deepspeed_s(), one.precision, one.overheads});
  return points;
}

bool is_in_fp32(const Table& table) {
  return std::ranges::all_of(
      table.all, [](const Configuration& one) { return one.precision == Precision::fp32; });
}

/// Of the figures that the program needs.
double rounded(double number) {
  return std::stod(fmt::format("{:.3g}", number));
}

void print_hierarchy(const std::vector<Table>& tables) {
  std::vector<std::vector<CalibrationPoint>> points;
  for (const Table& table : tables)
    if (is_in_fp32(table)) points.push_back(points_of(table.all));
  const bench::HierarchicalFit fit = bench::fit_hierarchy(points);
  json::Value costs_s = json::Value::object(), deviations_s = json::Value::object();
  json::Value correlations = json::Value::array();
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const auto overhead = static_cast<Overhead>(each);
    const auto i = static_cast<Eigen::Index>(each + 1);
    costs_s[std::string(to_text(overhead))] = rounded(fit.common.costs_s[each]);
    deviations_s[std::string(to_text(overhead))] =
        overhead == Overhead::link_byte ? 0 : rounded(std::sqrt(fit.covariance(i, i)));
  }
  for (Eigen::Index i = 1; i < fit.covariance.rows(); ++i)
    for (Eigen::Index j = 0; j < i; ++j)
      correlations.push_back(std::stod(fmt::format(
          "{:.3f}",
          fit.covariance(i, j) / std::sqrt(fit.covariance(i, i) * fit.covariance(j, j)))));
  std::printf("%s\n", json::Value{{"scale", rounded(fit.common.scale[0])},
                                  {"costs_s", costs_s},
                                  {"scale_deviation", rounded(std::sqrt(fit.covariance(0, 0)))},
                                  {"deviations_s", deviations_s},
                                  {"correlations", correlations}}
                          .dump()
                          .c_str());
  std::printf("off by %.1f %% (root of the mean square); factors of the host, network, kernels:\n",
              100 * fit.error);
  for (const auto& factors : fit.factors)
    std::printf("  %.2f %.2f %.2f\n", factors[0], factors[1], factors[2]);
  std::printf("  their logarithms spread by %.2f %.2f %.2f\n", fit.spread[0], fit.spread[1],
              fit.spread[2]);
}

/// How much longer steps are with a knob changed in DeepSpeed, by the program's constants and by
/// the fit, as logarithms in percent; only where at least two pairs differ in nothing else.
struct ChangedKnob {
  const char* title;
  const char* before;  ///< part of a member's name
  const char* after;
  const char* needed;  ///< another part
};
constexpr std::array changed_knobs{
    ChangedKnob{"recompute", "arnone", "arblock", ""},
    ChangedKnob{"stage 1 to 2", "z1_", "z2_", "gas1_"},
    ChangedKnob{"persistence 0", "sppt1.0e+05", "sppt0", ""},
    ChangedKnob{"offload", "oo_None", "oo_dcpu", ""},
};

void print_pairs(const Configurations& all, const std::vector<Estimate>& estimates) {
  std::map<std::string, const Configuration*> by_name;
  for (const Configuration& one : all) by_name[one.name] = &one;
  for (const ChangedKnob& knob : changed_knobs) {
    std::vector<double> sums(estimates.size(), 0);
    double count = 0;
    for (const auto& [name, one] : by_name) {
      const std::size_t at = (name + "_").find(knob.before);
      if (at == std::string::npos || (name + "_").find(knob.needed) == std::string::npos) continue;
      std::string changed = name;
      changed.replace(at, std::string_view(knob.before).size(), knob.after);
      const auto found = by_name.find(changed);
      if (found == by_name.end()) continue;
      for (std::size_t which = 0; which < estimates.size(); ++which)
        sums[which] += 100 * std::log(estimates[which](*found->second) / estimates[which](*one));
      ++count;
    }
    if (count < 2) continue;
    std::printf("| %s | %.0f", knob.title, count);
    for (const double sum : sums) std::printf(" | %.1f", sum / count);
    std::printf(" |\n");
  }
}

void print_left_out(const std::vector<Table>& tables, const TimeCalibration& constants) {
  for (std::size_t left_out = 0; left_out < tables.size(); ++left_out) {
    if (!is_in_fp32(tables[left_out])) continue;
    std::vector<std::vector<CalibrationPoint>> points;
    for (std::size_t table = 0; table < tables.size(); ++table)
      if (table != left_out && is_in_fp32(tables[table]))
        points.push_back(points_of(tables[table].all));
    const TimeCalibration fit = bench::fit_hierarchy(points).common;
    const Configurations& all = tables[left_out].all;
    const std::vector<Estimate> estimates{
        [](const Configuration& one) { return one.deepspeed_s(); },
        [](const Configuration& one) { return one.measured_s; },
        in_target(constants, &Configuration::measured_s),
        in_target(fit, &Configuration::measured_s)};
    std::printf(
        "table %zu: %s\n\n| | pairs | DeepSpeed | measured here | the program's constants | fit "
        "to the others |\n| --- | --- | --- | --- | --- | --- |\n",
        left_out + 1, all.front().name.c_str());
    for (const char* const figure : {"rank correlation", "mean error, %", "regret, %"}) {
      std::printf("| %s | %zu | ", figure, all.size());
      for (std::size_t which = 1; which < estimates.size(); ++which) {
        const Figures figures = figures_of(all, estimates[which], true);
        const std::string_view title = figure;
        std::printf(" | %.3f", title.starts_with("rank")   ? figures.correlation
                               : title.starts_with("mean") ? 100 * figures.error
                                                           : 100 * figures.regret);
      }
      std::printf(" |\n");
    }
    print_pairs(all, estimates);
    std::printf("\n");
  }
}

/// By least squares of the relative errors; the costs are `constants`'.
void print_scales(const std::vector<Table>& tables, const TimeCalibration& constants) {
  std::map<Precision, Configurations> runs;
  for (const Table& table : tables)
    for (const Configuration& one : table.all) runs[one.precision].push_back(one);
  for (const auto& [precision, all] : runs) {
    double least = HUGE_VAL, scale = 0;
    for (double tried = 0.1; tried <= 10; tried *= 1.005) {
      TimeCalibration fit = constants;
      fit.scale[static_cast<std::size_t>(precision)] = tried;
      if (const double error = square_error(all, fit); error < least) {
        least = error;
        scale = tried;
      }
    }
    std::printf("%s: %.2f by %zu configurations, off by %.1f %% (root of the mean square)\n",
                std::string(to_text(precision)).c_str(), scale, all.size(),
                100 * std::sqrt(least / static_cast<double>(all.size())));
  }
}

// Judging.

void judge(const Table& table, const TargetConstants& target) {
  const Configurations& all = table.all;
  const TimeCalibration& constants = target.time;
  // A single pass is both.
  const bool has_passes =
      std::ranges::all_of(all, [](const Configuration& one) { return one.deepspeed.size() > 1; });
  const auto odd = [](const Configuration& one) { return one.throughput(0, 2); };
  const auto even = [&](const Configuration& one) { return one.throughput(has_passes ? 1 : 0, 2); };
  const auto best = *std::ranges::max_element(all, {}, odd);
  std::vector<double> throughputs;
  for (const Configuration& one : all) throughputs.push_back(one.throughput());
  std::ranges::sort(throughputs);
  std::printf(
      "%zu configurations. DeepSpeed's best by the odd passes, %s, is %.1f %% above the median.\n\n"
      "| times | rank correlation | mean error after one scale | answer | slower than the best "
      "| faster than the baseline |\n| --- | --- | --- | --- | --- | --- |\n",
      all.size(), best.name.c_str(),
      100 * (best.throughput() / throughputs[throughputs.size() / 2] - 1));
  const auto print = [&](const char* title, const Estimate& estimate, bool is_odd = false) {
    const Figures figures =
        is_odd ? figures_of(all, estimate, true, 1, 2) : figures_of(all, estimate, true);
    const Configuration& answer = all[figures.best];
    std::printf("| %s | %.3f | %.1f %% | `%s` | %.1f %% | %.1f %% |\n", title, figures.correlation,
                100 * figures.error, answer.name.c_str(), 100 * (1 - even(answer) / even(best)),
                100 * (even(answer) / even(all[table.baseline]) - 1));
  };
  if (has_passes)
    print(
        "DeepSpeed's odd passes, of its even ones",
        [&](const Configuration& one) { return one.batch / odd(one); }, true);
  print("measured here", [](const Configuration& one) { return one.measured_s; });
  print("... in the target's time", in_target(constants, &Configuration::measured_s));
  if (std::ranges::all_of(all, [](const Configuration& one) { return one.predicted_s > 0; })) {
    print("predicted here", [](const Configuration& one) { return one.predicted_s; });
    print("... in the target's time", in_target(constants, &Configuration::predicted_s));
  }
  std::printf("\n");
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

void print_calibrated(const Configurations& all, std::size_t num_runs, bool stages_differ,
                      const TargetConstants& constants) {
  std::mt19937 random(1);
  const CalibrationPrior known = prior_of(constants);
  Figures none, without, with;
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
    add(none, figures(known.mean, true));
    add(without, figures(fit_to(drawn.runs, unknown_target()), false));
    const Figures one = figures(fit_to(drawn.runs, known), false);
    add(with, one);
    correlations.push_back(one.correlation);
  }
  std::ranges::sort(correlations);
  std::printf("| %zu%s", num_runs, stages_differ ? ", each of another stage" : "");
  for (const Figures& one : {none, without, with})
    std::printf(" | %.3f, %.1f %%, %.1f %%", one.correlation, 100 * one.regret, 100 * one.error);
  std::printf(" | %.3f |\n", correlations[correlations.size() / 20]);
}

void calibrate(const Configurations& all, const TargetConstants& constants) {
  std::set<int> stages;
  for (const Configuration& one : all) stages.insert(one.stage);
  std::printf(
      "Of %zu, those left out: rank correlation, regret, mean error of times.\n\n"
      "| runs | constants alone | runs alone | constants and runs | correlation, 5 %% of the draws "
      "below |\n| --- | --- | --- | --- | --- |\n",
      all.size());
  for (const std::size_t num_runs : {1U, 2U, 4U}) print_calibrated(all, num_runs, false, constants);
  if (stages.size() > 1) print_calibrated(all, 2, true, constants);
  std::printf("\n");
}

}  // namespace
}  // namespace dstune

int main(int argc, char** argv) {
  using namespace dstune;
  const char* const program = argv[0];
  std::optional<std::string> profile;
  if (argc > 2 && std::string(argv[1]) == "--profile") {
    profile = argv[2];
    argc -= 2;
    argv += 2;
  }
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::set<std::string> modes = {"counts", "fit",   "hierarchy", "left-out",
                                       "scales", "judge", "calibrate"};
  if (!modes.contains(mode) || argc < 4 || argc % 2 != 0) {
    std::fprintf(stderr,
                 "usage: %s [--profile FILE] counts|fit|hierarchy|left-out|scales|judge|calibrate "
                 "SPACE.json "
                 "TABLE.json [SPACE TABLE ...]\n",
                 program);
    return 2;
  }
  try {
    std::vector<Table> tables;
    for (int at = 2; at < argc; at += 2) tables.push_back(read_table(argv[at], argv[at + 1]));
    const TargetConstants constants =
        profile ? bench::constants_in(*profile) : target_constants(tables.front().is_on_gpus);
    if (profile)
      std::printf("Constants measured by %d tiny engines, off by %.1f %% of their times:\n%s\n\n",
                  constants.num_engines, 100 * constants.fit_error,
                  json::write(constants).dump().c_str());
    if (mode == "fit") print_constants(tables);
    if (mode == "hierarchy") print_hierarchy(tables);
    if (mode == "left-out") print_left_out(tables, constants.time);
    if (mode == "scales") print_scales(tables, constants.time);
    for (const Table& table : tables) {
      if (mode == "counts") print_counts(table.all);
      if (mode == "judge") judge(table, constants);
      if (mode == "calibrate") calibrate(table.all, constants);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
