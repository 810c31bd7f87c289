#include "dstune/predict/device_profile.hpp"

#include <algorithm>
#include <map>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

/// Sizes this near to a traced one are known from the trace.
constexpr double near_ratio = 2;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool is_near(std::int64_t size, std::int64_t other) {
  const auto one = static_cast<double>(size);
  const auto two = static_cast<double>(other);
  return one <= near_ratio * two && two <= near_ratio * one;
}

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

ProfileBuilder::Curve& ProfileBuilder::curve_of(const Work& work) {
  for (Curve& curve : curves_) {
    if (is_same_curve(curve.work, work)) return curve;
  }
  Work any_size = work;
  any_size.size = 0;
  return curves_.emplace_back(Curve{any_size, {}, {}});
}

void ProfileBuilder::add(const StepPlan& plan, std::span<const StepTrace> traces,
                         std::span<const double> steps_s) {
  require(!traces.empty() && !steps_s.empty(), "a step was run");
  std::vector<double> times_s;
  for (std::size_t place = 0; place < traces.front().size(); ++place) {
    const Operation* const operation = traces.front()[place].operation;
    const auto work = operation == nullptr ? work_of_tokens(plan) : work_of(plan, *operation);
    if (!work) continue;
    times_s.clear();
    for (const StepTrace& trace : traces) {
      require(trace.size() == traces.front().size() && trace[place].operation == operation,
              "steady steps are alike");
      times_s.push_back(trace[place].seconds);
    }
    const double seconds = median(times_s);
    Sum& sum = curve_of(*work).traced[work->size];
    sum.seconds += seconds;
    ++sum.count;
    operations_s_ += seconds;
  }
  steps_s_ += median({steps_s.begin(), steps_s.end()});
}

void ProfileBuilder::add_alone(const Work& work, double seconds) {
  Sum& sum = curve_of(work).alone[work.size];
  sum.seconds += seconds;
  ++sum.count;
}

DeviceProfile ProfileBuilder::build(GroupShape shape) const {
  DeviceProfile profile;
  GroupProfile group{shape, operations_s_ > 0 ? steps_s_ / operations_s_ : 1, {}};
  for (const Curve& curve : curves_) {
    std::map<std::int64_t, Sum> sums = curve.traced;
    for (const auto& [size, sum] : curve.alone) {
      const bool is_traced =
          std::any_of(curve.traced.begin(), curve.traced.end(),
                      [size = size](const auto& traced) { return is_near(size, traced.first); });
      if (!is_traced) sums[size] = sum;
    }
    TimeCurve times{curve.work, {}};
    for (const auto& [size, sum] : sums)
      times.points.push_back({size, sum.seconds / static_cast<double>(sum.count)});
    (is_collective(curve.work.kind) ? group.collectives : profile.kernels)
        .push_back(std::move(times));
  }
  profile.groups.push_back(std::move(group));
  return profile;
}

}  // namespace dstune
