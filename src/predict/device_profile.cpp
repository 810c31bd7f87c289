#include "dstune/predict/device_profile.hpp"

#include <algorithm>
#include <map>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// The mean of curves of the same work.
TimeCurve mean_of(const std::vector<const TimeCurve*>& curves) {
  std::map<std::int64_t, std::pair<double, int>> sums;
  for (const TimeCurve* curve : curves) {
    for (const TimePoint& point : curve->points) {
      auto& [seconds, count] = sums[point.size];
      seconds += point.seconds;
      ++count;
    }
  }
  TimeCurve mean{curves.front()->work, {}};
  for (const auto& [size, sum] : sums) mean.points.push_back({size, sum.first / sum.second});
  return mean;
}

/// In the order of their first appearance.
std::vector<TimeCurve> merge_curves(const std::vector<const std::vector<TimeCurve>*>& lists) {
  std::vector<std::vector<const TimeCurve*>> alike;
  for (const auto* list : lists) {
    for (const TimeCurve& curve : *list) {
      const auto found = std::find_if(alike.begin(), alike.end(), [&](const auto& curves) {
        return is_same_curve(curves.front()->work, curve.work);
      });
      if (found == alike.end()) {
        alike.push_back({&curve});
      } else {
        found->push_back(&curve);
      }
    }
  }
  std::vector<TimeCurve> merged;
  merged.reserve(alike.size());
  for (const auto& curves : alike) merged.push_back(mean_of(curves));
  return merged;
}

}  // namespace

double TimeCurve::seconds(std::int64_t size) const {
  require(!points.empty(), "a curve has a point");
  const auto wanted = static_cast<double>(size);
  const TimePoint& first = points.front();
  const TimePoint& last = points.back();
  const auto on_line = [&](const TimePoint& low, const TimePoint& high) {
    const auto from = static_cast<double>(low.size);
    return low.seconds +
           (high.seconds - low.seconds) * (wanted - from) / (static_cast<double>(high.size) - from);
  };
  if (size >= last.size) return last.seconds * wanted / static_cast<double>(last.size);
  if (size <= first.size) {
    const double proportional = first.seconds * wanted / static_cast<double>(first.size);
    if (points.size() == 1) return proportional;
    return std::clamp(on_line(first, points[1]), proportional, first.seconds);
  }
  const auto above = std::upper_bound(
      points.begin(), points.end(), size,
      [](std::int64_t value, const TimePoint& point) { return value < point.size; });
  return on_line(*std::prev(above), *above);
}

DeviceProfile merge_profiles(std::span<const DeviceProfile> profiles) {
  require(!profiles.empty(), "there is a profile to merge");
  DeviceProfile merged = profiles.front();
  std::vector<const std::vector<TimeCurve>*> kernels;
  std::map<GroupShape, std::vector<const GroupProfile*>> groups;
  merged.step_constant_s = 0;
  for (const DeviceProfile& profile : profiles) {
    merged.step_constant_s += profile.step_constant_s / static_cast<double>(profiles.size());
    kernels.push_back(&profile.kernels);
    for (const GroupProfile& group : profile.groups) groups[group.shape].push_back(&group);
  }
  merged.kernels = merge_curves(kernels);
  merged.groups.clear();
  for (const auto& [shape, measured] : groups) {
    GroupProfile group{shape, 0, {}};
    std::vector<const std::vector<TimeCurve>*> collectives;
    for (const GroupProfile* one : measured) {
      group.slowdown += one->slowdown / static_cast<double>(measured.size());
      collectives.push_back(&one->collectives);
    }
    group.collectives = merge_curves(collectives);
    merged.groups.push_back(std::move(group));
  }
  return merged;
}

}  // namespace dstune
