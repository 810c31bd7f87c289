#include "target_fits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/json.hpp"
#include "hierarchical_fit.hpp"

namespace dstune::bench {
namespace {

TimeCalibration fit_to(const Configurations& runs, const CalibrationPrior& prior) {
  return fit_time(points_of(runs), prior);
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

bool is_in_fp32(const Table& table) {
  return std::ranges::all_of(
      table.all, [](const Configuration& one) { return one.precision == Precision::fp32; });
}

/// Of the figures that the program needs.
double rounded(double number) {
  return std::stod(fmt::format("{:.3g}", number));
}

}  // namespace

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

void print_hierarchy(const std::vector<Table>& tables) {
  std::vector<std::vector<CalibrationPoint>> points;
  for (const Table& table : tables)
    if (is_in_fp32(table)) points.push_back(points_of(table.all));
  const HierarchicalFit fit = fit_hierarchy(points);
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

namespace {

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

/// The mean of some pairs, by DeepSpeed and each estimate.
struct Pairs {
  const char* title;
  double count;
  std::vector<double> percent;
};

std::vector<Pairs> pairs_of(const Configurations& all, const std::vector<Estimate>& estimates) {
  std::map<std::string, const Configuration*> by_name;
  for (const Configuration& one : all) by_name[one.name] = &one;
  std::vector<Pairs> found_pairs;
  for (const ChangedKnob& knob : changed_knobs) {
    Pairs pairs{knob.title, 0, std::vector<double>(estimates.size(), 0)};
    for (const auto& [name, one] : by_name) {
      const std::size_t at = (name + "_").find(knob.before);
      if (at == std::string::npos || (name + "_").find(knob.needed) == std::string::npos) continue;
      std::string changed = name;
      changed.replace(at, std::string_view(knob.before).size(), knob.after);
      const auto found = by_name.find(changed);
      if (found == by_name.end()) continue;
      for (std::size_t which = 0; which < estimates.size(); ++which)
        pairs.percent[which] +=
            100 * std::log(estimates[which](*found->second) / estimates[which](*one));
      ++pairs.count;
    }
    if (pairs.count < 2) continue;
    for (double& percent : pairs.percent) percent /= pairs.count;
    found_pairs.push_back(std::move(pairs));
  }
  return found_pairs;
}

/// A table, by a fit to all others: DeepSpeed's own times, ours, those by the program's constants,
/// and by the fit.
struct LeftOut {
  const Table* table;
  std::vector<Estimate> estimates;
  std::vector<Figures> figures;  ///< of all but the first
  std::vector<Pairs> pairs;
};

std::vector<LeftOut> leave_out(const std::vector<Table>& tables, const TimeCalibration& constants) {
  std::vector<LeftOut> found;
  for (std::size_t left_out = 0; left_out < tables.size(); ++left_out) {
    if (!is_in_fp32(tables[left_out])) continue;
    std::vector<std::vector<CalibrationPoint>> points;
    for (std::size_t table = 0; table < tables.size(); ++table)
      if (table != left_out && is_in_fp32(tables[table]))
        points.push_back(points_of(tables[table].all));
    const TimeCalibration fit = fit_hierarchy(points).common;
    const Configurations& all = tables[left_out].all;
    LeftOut one{&tables[left_out],
                {[](const Configuration& each) { return each.deepspeed_s(); },
                 [](const Configuration& each) { return each.measured_s; },
                 in_target(constants, &Configuration::measured_s),
                 in_target(fit, &Configuration::measured_s)},
                {},
                {}};
    for (std::size_t which = 1; which < one.estimates.size(); ++which)
      one.figures.push_back(figures_of(all, one.estimates[which], true));
    one.pairs = pairs_of(all, one.estimates);
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace

void print_left_out(const std::vector<Table>& tables, const TimeCalibration& constants) {
  for (const LeftOut& one : leave_out(tables, constants)) {
    std::printf(
        "%s\n\n| | pairs | DeepSpeed | measured here | the program's constants | fit to the "
        "others |\n| --- | --- | --- | --- | --- | --- |\n",
        one.table->name.c_str());
    const auto print = [&](const char* title, double Figures::*figure, double unit) {
      std::printf("| %s | %zu | ", title, one.table->all.size());
      for (const Figures& figures : one.figures) std::printf(" | %.3f", unit * figures.*figure);
      std::printf(" |\n");
    };
    print("rank correlation", &Figures::correlation, 1);
    print("mean error, %", &Figures::error, 100);
    print("regret, %", &Figures::regret, 100);
    for (const Pairs& pairs : one.pairs) {
      std::printf("| %s | %.0f", pairs.title, pairs.count);
      for (const double percent : pairs.percent) std::printf(" | %.1f", percent);
      std::printf(" |\n");
    }
    std::printf("\n");
  }
}

std::vector<JsonTable> tables_of_left_out(const std::vector<Table>& tables,
                                          const TimeCalibration& constants) {
  JsonTable left_out{"left_out",
                     {"table", "members", "own", "own_error", "own_below", "program",
                      "program_error", "program_below", "fit", "fit_error", "fit_below"}};
  JsonTable knobs{"knobs", {"table", "knob", "pairs", "deepspeed", "own", "program", "fit"}};
  for (const LeftOut& one : leave_out(tables, constants)) {
    std::vector<json::Value> row = {one.table->name, one.table->all.size()};
    for (const Figures& figures : one.figures)
      row.insert(row.end(), {figures.correlation, 100 * figures.error, 100 * figures.regret});
    left_out.rows.push_back(std::move(row));
    for (const Pairs& pairs : one.pairs) {
      std::vector<json::Value> of_knob = {one.table->name, pairs.title, pairs.count};
      of_knob.insert(of_knob.end(), pairs.percent.begin(), pairs.percent.end());
      knobs.rows.push_back(std::move(of_knob));
    }
  }
  return {left_out, knobs};
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

void print_factors(const std::vector<Table>& tables, const TimeCalibration& constants) {
  std::printf("factors of the host, network, kernels beside the program's constants:\n");
  for (const Table& table : tables) {
    const auto factors = fit_factors(points_of(table.all), constants);
    std::printf("  %.2f %.2f %.2f  %s\n", factors[0], factors[1], factors[2], table.name.c_str());
  }
}

JsonTable table_of_factors(const std::vector<Table>& tables, const TimeCalibration& constants) {
  JsonTable found{"factors", {"table", "host", "network", "kernels"}};
  for (const Table& table : tables) {
    const auto factors = fit_factors(points_of(table.all), constants);
    found.rows.push_back({table.name, factors[0], factors[1], factors[2]});
  }
  return found;
}

}  // namespace dstune::bench
