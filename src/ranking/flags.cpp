// Flags for strange measurements.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "dstune/core/interval.hpp"
#include "dstune/ranking/answer.hpp"

namespace dstune {

namespace {

std::size_t num_outliers(const std::vector<double>& timed_s, const Policy::Flags& policy) {
  const double middle = median(timed_s);
  std::vector<double> distances;
  for (const double step_s : timed_s) distances.push_back(std::abs(step_s - middle));
  constexpr double of_normal = 1.4826;  // median distance to standard deviation
  const double allowed = std::max(policy.outlying_deviations * of_normal * median(distances),
                                  policy.outlying_share * middle);
  return static_cast<std::size_t>(std::count_if(
      timed_s.begin(), timed_s.end(), [&](double step_s) { return step_s > middle + allowed; }));
}

/// The share by which the last third takes longer than the first, if that is clear; else 0.
double slowdown(const std::vector<double>& timed_s, const Policy& policy) {
  const auto third = static_cast<std::ptrdiff_t>(timed_s.size() / 3);
  const MeanEstimate first =
      estimate_mean({timed_s.begin(), timed_s.begin() + third}, 0, policy.intervals);
  const MeanEstimate last =
      estimate_mean({timed_s.end() - third, timed_s.end()}, 0, policy.intervals);
  if (first.mean <= 0) return 0;
  const double share = last.mean / first.mean - 1;
  const double error = std::hypot(first.standard_error, last.standard_error) / first.mean;
  return share > policy.flags.slower_share && share > policy.flags.clear_errors * error ? share : 0;
}

/// Forward of each host's slowest rank.
std::map<std::string, double> forward_of_hosts(const Measurement& measurement) {
  std::map<std::string, double> slowest;
  for (std::size_t i = 0; i < measurement.hosts.size(); ++i) {
    double& forward_s = slowest[measurement.hosts[i]];
    forward_s = std::max(forward_s, measurement.rank_forward_s[i]);
  }
  return slowest;
}

using Flags = std::vector<std::string>;

Flags not_comparable_flags(const Measurement& measurement, const Policy& /*policy*/) {
  const std::string& why = measurement.not_comparable;
  return why.empty() ? Flags{} : Flags{fmt::format("{}: {}", not_comparable_words, why)};
}

Flags fallback_flags(const Measurement& measurement, const Policy& /*policy*/) {
  Flags flags;
  // The reason why it is not comparable is a flag already.
  for (const std::string& text : measurement.fallbacks)
    if (measurement.not_comparable.find(text) == text.npos) flags.push_back("fallback: " + text);
  return flags;
}

/// GPUs that compute all the time run at their power cap, a few per cent below their highest clock.
bool is_as_usual(const GpuCondition& gpu, const Policy::Flags& policy) {
  return gpu.throttled_by == "power cap" && gpu.max_sm_clock_mhz > 0 &&
         gpu.sm_clock_mhz >= policy.usual_clock_share * gpu.max_sm_clock_mhz;
}

Flags throttled_flags(const Measurement& measurement, const Policy& policy) {
  if (!measurement.gpu || measurement.gpu->throttled_by.empty()) return {};
  const GpuCondition& gpu = *measurement.gpu;
  if (is_as_usual(gpu, policy.flags)) return {};
  std::string text = "throttled: " + gpu.throttled_by;
  if (gpu.sm_clock_mhz > 0 && gpu.max_sm_clock_mhz > 0)
    text += fmt::format(", {:.0f} of {:.0f} MHz", gpu.sm_clock_mhz, gpu.max_sm_clock_mhz);
  if (gpu.temperature_c > 0) text += fmt::format(", {:.0f} °C", gpu.temperature_c);
  return {text};
}

/// Flags of the timed steps alone.
Flags unsteady_flags(const Measurement& measurement, const Policy& policy) {
  Flags flags;
  const std::vector<double> timed_s = timed_steps_s(measurement);
  if (timed_s.size() < policy.flags.min_steps) return flags;
  if (const std::size_t outliers = num_outliers(timed_s, policy.flags); outliers > 0)
    flags.push_back(fmt::format("outliers: {} of {} timed steps", outliers, timed_s.size()));
  if (timed_s.size() < policy.flags.min_for_trend) return flags;
  if (const double share = slowdown(timed_s, policy); share > 0)
    flags.push_back(fmt::format(
        "slowing: the last third of the steps took {:.1f} % longer than the first (throttling?)",
        100 * share));
  return flags;
}

/// In their order.
using FlagsOf = Flags (*)(const Measurement&, const Policy&);
constexpr std::pair<FlagKind, FlagsOf> kinds[] = {{FlagKind::unsteady, unsteady_flags},
                                                  {FlagKind::throttled, throttled_flags},
                                                  {FlagKind::not_comparable, not_comparable_flags},
                                                  {FlagKind::fallback, fallback_flags}};

}  // namespace

std::vector<std::string> flags_of(const Measurement& measurement, const Policy& policy) {
  std::vector<std::string> flags;
  for (const auto& [kind, of_kind] : kinds)
    std::ranges::move(of_kind(measurement, policy), std::back_inserter(flags));
  return flags;
}

std::vector<SlowHost> slow_hosts(const PackedList<Row>& rows, const Policy::Flags& policy) {
  std::map<std::string, std::vector<double>> slower_by;
  rows.visit_open([&](std::size_t, const Row& row) {
    if (!row.record || row.record->experiment.config.zero_stage >= 3) return;
    const Measurement& measurement = row.record->measurement;
    if (measurement.rank_forward_s.empty() ||
        measurement.rank_forward_s.size() != measurement.hosts.size())
      return;
    const auto forward_s = forward_of_hosts(measurement);
    if (forward_s.size() < 2) return;
    for (const auto& [host, mine] : forward_s) {
      std::vector<double> others;
      for (const auto& [other, theirs] : forward_s)
        if (other != host) others.push_back(theirs);
      const double usual = median(others);
      if (usual > 0) slower_by[host].push_back(mine / usual - 1);
    }
  });
  std::vector<SlowHost> slow;
  for (const auto& [host, shares] : slower_by) {
    const bool always = std::all_of(shares.begin(), shares.end(),
                                    [&](double share) { return share > policy.slow_share; });
    const auto groups = static_cast<int>(shares.size());
    if (always && groups >= policy.min_groups) slow.push_back({host, groups, median(shares)});
  }
  return slow;
}

std::vector<FlagCount> count_flags(const PackedList<Row>& rows, const Policy& policy) {
  std::vector<FlagCount> counts;
  for (const auto& [kind, of_kind] : kinds) {
    FlagCount flagged{kind};
    rows.visit_open([&, &of_flag = of_kind](std::size_t, const Row& row) {
      if (!row.record) return;
      const Flags flags = of_flag(row.record->measurement, policy);
      if (flags.empty() || ++flagged.count > 1) return;
      flagged.first_name = row.planned.experiment.name;
      flagged.first_flag = flags.front();
    });
    if (flagged.count > 0) counts.push_back(std::move(flagged));
  }
  return counts;
}

std::vector<std::string> changed_numerics(const Experiment& experiment) {
  std::vector<std::string> keys;
  // A group of one gathers nothing, and inside a node gradients are reduced as they are.
  if (quantizes_weights(experiment.config) && experiment.shape.size() > 1)
    keys.emplace_back("zero_quantized_weights");
  if (quantizes_gradients(experiment.config) && experiment.shape.num_nodes > 1)
    keys.emplace_back("zero_quantized_gradients");
  return keys;
}

}  // namespace dstune
