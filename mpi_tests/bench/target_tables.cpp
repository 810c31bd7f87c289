#include "target_tables.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "dstune/ranking/answer.hpp"
#include "dstune/ranking/scoreboard.hpp"
#include "fidelity_table.hpp"

namespace dstune::bench {

Table read_table(const std::string& space_path, const std::string& table_path) {
  const FidelityTable table = read_fidelity_table(space_path, table_path);
  Table found;
  found.name = std::filesystem::path(table_path).stem().string();
  found.baseline = table.baseline.value_or(0);
  found.is_on_gpus = table.is_on_gpus;
  for (const FidelityRow& row : table.rows) {
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

std::vector<CalibrationPoint> points_of(const Configurations& all) {
  std::vector<CalibrationPoint> points;
  for (const Configuration& one : all)
    points.push_back({one.measured_s, one.deepspeed_s(), one.precision, one.overheads});
  return points;
}

Estimate in_target(const TimeCalibration& calibration, double Configuration::*here_s) {
  return [=](const Configuration& one) {
    return calibration.target_s(one.*here_s, one.precision, one.overheads);
  };
}

Figures figures_of(const Configurations& all, const Estimate& estimate, bool scales,
                   std::size_t first, std::size_t stride) {
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

}  // namespace dstune::bench
