#include "dstune/predict/profile_builder.hpp"

#include <algorithm>

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

}  // namespace

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
