#include "table_predictions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "dstune/core/devices.hpp"
#include "dstune/predict/roofline.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "dstune/train/executor.hpp"

namespace dstune::bench {
namespace {

DeviceProfile published_rates_of(const std::string& name) {
  const DeviceSpec* const device = find_device_spec(name);
  if (device == nullptr)
    throw Error(fmt::format("there is no device {}: take one of {}", name,
                            fmt::join(device_names(), ", ")));
  return published_profile({.device = *device});
}

/// Why a space can not be predicted by a profile; empty: it can.
std::string what_lacks(const DeviceProfile& profile, GroupShape shape) {
  if (profile.kernels.empty())
    return profile.cluster ? roofline_lacks(*profile.cluster, shape) : "times of kernels";
  const bool has_collectives = std::ranges::any_of(
      profile.groups, [](const GroupProfile& group) { return !group.collectives.empty(); });
  return shape.size() > 1 && !has_collectives ? "times of collectives" : "";
}

/// Places by their values, from 1 on; equal ones have the mean of their places.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t place) { return values[place]; });
  std::vector<double> ranks(values.size());
  for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    for (std::size_t place = from; place < to; ++place)
      ranks[order[place]] = static_cast<double>(from + 1 + to) / 2;
  }
  return ranks;
}

/// Spearman's: that of the ranks.
double rank_correlation(const std::vector<double>& one, const std::vector<double>& other) {
  const std::vector<double> left = ranks_of(one), right = ranks_of(other);
  const double middle = static_cast<double>(one.size() + 1) / 2;
  double both = 0, of_left = 0, of_right = 0;
  for (std::size_t place = 0; place < one.size(); ++place) {
    both += (left[place] - middle) * (right[place] - middle);
    of_left += std::pow(left[place] - middle, 2);
    of_right += std::pow(right[place] - middle, 2);
  }
  return both / std::sqrt(of_left * of_right);
}

/// The mean distance of their logarithms, less the factor that all have in common.
double mean_error(const std::vector<double>& predicted, const std::vector<double>& measured) {
  std::vector<double> errors;
  for (std::size_t place = 0; place < predicted.size(); ++place)
    errors.push_back(std::log(predicted[place] / measured[place]));
  const double common =
      std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
  double sum = 0;
  for (const double error : errors) sum += std::abs(error - common);
  return sum / static_cast<double>(errors.size());
}

/// How far the member with the best prediction is below the best.
double below_best(const std::vector<double>& predicted, const std::vector<double>& measured) {
  const auto first = std::ranges::max_element(predicted) - predicted.begin();
  return 1 - measured[static_cast<std::size_t>(first)] / std::ranges::max(measured);
}

}  // namespace

std::optional<DeviceProfile> profile_for(const json::Document& made,
                                         const PredictionsOf& predictions) {
  if (predictions.device) return published_rates_of(*predictions.device);
  if (predictions.profile_path) {
    const json::Document document = json::Document::read(*predictions.profile_path);
    const auto of_table = document.node().find("profile");
    return device_profile_from_json(of_table ? *of_table : document.node());
  }
  if (predictions.is_anew) return device_profile_from_json(*made.node().find("profile"));
  return std::nullopt;
}

void predict(const JobSpec& job, const DeviceProfile& profile, PlannedSpace& space) {
  const CpuWorkspaces workspaces(kernels::cpu_table());
  StepPredictor predictor(job.model, profile, workspaces);
  for (PlannedMember& member : space.members) {
    PlannedExperiment& planned = member.planned;
    if (planned.status != PlanStatus::planned) continue;
    const GroupShape shape = planned.experiment.shape;
    if (const std::string lacks = what_lacks(profile, shape); !lacks.empty())
      throw CanNotPredict(fmt::format("{}: the profile lacks {}", planned.experiment.name, lacks));
    const auto batch = global_batch(planned.experiment.config, shape.size());
    planned.predicted.throughput =
        static_cast<double>(batch) / predictor.predict(planned.experiment);
  }
}

void print_predictions_heading(FigureTables& tables) {
  tables.begin("predictions", "",
               {"space", "predictions of", "rank correlation", "error %",
                "the best of them: below the best %"});
}

void print_predictions(const PredictedTable& table, FigureTables& tables) {
  const auto print = [&](const char* whose, const std::vector<double>& predicted) {
    tables.row({fmt::format("{} ({})", table.name, predicted.size()),
                whose,
                {rank_correlation(predicted, table.measured), 2},
                {100 * mean_error(predicted, table.measured), 1},
                {100 * below_best(predicted, table.measured), 2}});
  };
  print("the recording", table.by_recording);
  print("elsewhere", table.by_other);
}

}  // namespace dstune::bench
