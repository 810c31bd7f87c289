#include "dstune/predict/device_profile.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/archive.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool is_near(std::int64_t size, std::int64_t other, double near_ratio) {
  const auto one = static_cast<double>(size);
  const auto two = static_cast<double>(other);
  return one <= near_ratio * two && two <= near_ratio * one;
}

std::vector<TimePoint> points_of(const std::map<std::int64_t, TimeSum>& sums) {
  std::vector<TimePoint> points;
  for (const auto& [size, sum] : sums)
    points.push_back({size, sum.seconds / static_cast<double>(sum.count)});
  return points;
}

enum class Merging { mean, least };

/// One of those of the same work, in the order of their first appearance.
std::vector<TimeCurve> merge_curves(const std::vector<TimeCurve>& all, Merging merging) {
  std::vector<TimeCurve> merged;
  std::vector<std::map<std::int64_t, TimeSum>> sums;
  for (const TimeCurve& curve : all) {
    const auto found = std::ranges::find_if(
        merged, [&](const TimeCurve& one) { return is_same_curve(one.work, curve.work); });
    const auto place = static_cast<std::size_t>(found - merged.begin());
    if (place == merged.size()) {
      merged.push_back({curve.work, {}});
      sums.emplace_back();
    }
    for (const TimePoint& point : curve.points) {
      TimeSum& sum = sums[place][point.size];
      if (merging == Merging::least && sum.count > 0)
        sum.seconds = std::min(sum.seconds, point.seconds);
      else
        sum.add(point.seconds);
    }
  }
  for (std::size_t each = 0; each < merged.size(); ++each)
    merged[each].points = points_of(sums[each]);
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
  const auto above = std::ranges::upper_bound(points, size, {}, &TimePoint::size);
  return on_line(*std::prev(above), *above);
}

DeviceProfile published_profile(const Cluster& cluster) {
  DeviceProfile profile;
  profile.concurrent_streams = true;
  profile.overlap_slowdown = training_rates().overlap_slowdown;
  profile.cluster = completed(cluster);
  return profile;
}

namespace {

DeviceProfile merged_profiles(std::span<const DeviceProfile> profiles, Merging merging) {
  require(!profiles.empty(), "there is a profile to merge");
  DeviceProfile merged = profiles.front();
  std::vector<TimeCurve> kernels;
  std::map<GroupShape, std::vector<const GroupProfile*>> groups;
  TimeSum interpreter;
  merged.step_constant_s = 0;
  for (const DeviceProfile& profile : profiles) {
    merged.step_constant_s += profile.step_constant_s / static_cast<double>(profiles.size());
    if (profile.interpreter_s > 0) {
      interpreter.add(profile.interpreter_s);
      merged.interpreter_s = merged.interpreter_s > 0
                                 ? std::min(merged.interpreter_s, profile.interpreter_s)
                                 : profile.interpreter_s;
    }
    std::ranges::copy(profile.kernels, std::back_inserter(kernels));
    for (const GroupProfile& group : profile.groups) groups[group.shape].push_back(&group);
  }
  if (merging == Merging::mean && interpreter.count > 0)
    merged.interpreter_s = interpreter.seconds / static_cast<double>(interpreter.count);
  merged.kernels = merge_curves(kernels, merging);
  merged.groups.clear();
  for (const auto& [shape, measured] : groups) {
    GroupProfile group{shape, 0, {}};
    std::vector<TimeCurve> collectives;
    const auto least = std::ranges::min(measured, {}, &GroupProfile::slowdown)->slowdown;
    for (const GroupProfile* one : measured) {
      group.slowdown += one->slowdown / static_cast<double>(measured.size());
      std::ranges::copy(one->collectives, std::back_inserter(collectives));
    }
    if (merging == Merging::least) group.slowdown = least;
    group.collectives = merge_curves(collectives, merging);
    merged.groups.push_back(std::move(group));
  }
  return merged;
}

}  // namespace

DeviceProfile merge_profiles(std::span<const DeviceProfile> profiles) {
  return merged_profiles(profiles, Merging::mean);
}

DeviceProfile least_of_profiles(std::span<const DeviceProfile> profiles) {
  return merged_profiles(profiles, Merging::least);
}

ProfileBuilder::Curve& ProfileBuilder::curve_of(const Work& work) {
  for (Curve& curve : curves_)
    if (is_same_curve(curve.work, work)) return curve;
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
    curve_of(*work).traced[work->size].add(seconds);
    operations_s_ += seconds;
  }
  steps_s_ += median({steps_s.begin(), steps_s.end()});
}

void ProfileBuilder::add_alone(const Work& work, double seconds) {
  curve_of(work).alone[work.size].add(seconds);
}

DeviceProfile ProfileBuilder::build(GroupShape shape) const {
  DeviceProfile profile;
  GroupProfile group{shape, operations_s_ > 0 ? steps_s_ / operations_s_ : 1, {}};
  for (const Curve& curve : curves_) {
    std::map<std::int64_t, TimeSum> sums = curve.traced;
    for (const auto& [size, sum] : curve.alone) {
      const bool is_traced = std::ranges::any_of(curve.traced, [&, at = size](const auto& traced) {
        return is_near(at, traced.first, policy_->near_ratio);
      });
      if (!is_traced) sums[size] = sum;
    }
    (is_collective(curve.work.kind) ? group.collectives : profile.kernels)
        .push_back({curve.work, points_of(sums)});
  }
  profile.groups.push_back(std::move(group));
  return profile;
}

namespace {

using json::Of;

constexpr std::string_view format_name = "dstune-mpi device profile";
constexpr double max_exact = 0x1p53;
constexpr json::Form from_0{.low = 0, .high = max_exact};
constexpr json::Form from_1{.low = 1, .high = max_exact};
/// No operation took longer, and no ratio was larger: what is beyond was not measured. Many ranks
/// on few cores slow each other a thousandfold.
constexpr double longest_s = 86'400, largest_ratio = 1e9;

/// Refuses what nobody can have measured, at its place.
void refuse_above(json::Reader& archive, double value, double most, std::string_view unit,
                  const std::string& below) {
  if (value <= most) return;
  archive.refuse(fmt::format("{:g}{} can not have been measured, since it is above {:.0f}: measure "
                             "again with --profile-out",
                             value, unit, most),
                 below);
}

/// Constants that a profile brings are used as they are.
void check(json::Reader& archive, const TargetConstants& constants) {
  const auto each = [&](const EnumTexts& texts, const auto& amounts, double most,
                        std::string_view unit, std::string_view key) {
    for (const EnumText& one : texts.all)
      refuse_above(archive, amounts[static_cast<std::size_t>(one.value)], most, unit,
                   fmt::format("/target/{}/{}", key, one.text));
  };
  each(texts_of(Precision{}), constants.time.scale, largest_ratio, "", "scale");
  each(texts_of(Overhead{}), constants.time.costs_s, longest_s, " s", "costs_s");
  each(texts_of(Overhead{}), constants.deviations_s, longest_s, " s", "deviations_s");
  refuse_above(archive, constants.error, largest_ratio, "", "/target/error");
  refuse_above(archive, constants.fit_error, largest_ratio, "", "/target/fit_error");
  refuse_above(archive, constants.scale_deviation, largest_ratio, "", "/target/scale_deviation");
}

/// The flags that are set, as a list.
template <class Archive>
void flags(Archive& archive, Of<Archive, Work>& work) {
  std::vector<WorkFlag> set;
  for (int flag = 0; flag < num_work_flags; ++flag)
    if (work.has(static_cast<WorkFlag>(flag))) set.push_back(static_cast<WorkFlag>(flag));
  archive("flags", set);
  if constexpr (Archive::is_reading)
    for (const WorkFlag flag : set) work.set(flag);
}

/// The type of what is read and that of what is written, as a list.
template <class Archive>
void types(Archive& archive, Of<Archive, Work>& work) {
  std::vector<DType> both{work.type, work.out_type};
  archive("types", both);
  if constexpr (Archive::is_reading) {
    if (both.size() != 2)
      return archive.refuse("\"types\" are those of what is read and of what is written");
    work.type = both[0];
    work.out_type = both[1];
  }
}

/// Checks of a curve that types and bounds do not make.
void check(json::Reader& archive, const std::vector<TimePoint>& points) {
  for (std::size_t i = 1; i < points.size(); ++i)
    if (points[i].size <= points[i - 1].size)
      archive.refuse("sizes rise from point to point", "/points/" + std::to_string(i));
  for (std::size_t i = 0; i < points.size(); ++i)
    refuse_above(archive, points[i].seconds, longest_s, " s", fmt::format("/points/{}/1", i));
  if (points.empty()) archive.refuse("a curve has a point at least");
}

/// Collectives belong to a group, and nothing else does.
void check(json::Reader& archive, std::string_view key, const std::vector<TimeCurve>& curves,
           bool of_group) {
  for (std::size_t i = 0; i < curves.size(); ++i)
    if (is_collective(curves[i].work.kind) != of_group)
      archive.refuse(of_group ? "is no collective" : "is a collective: they belong to a group",
                     '/' + std::string(key) + '/' + std::to_string(i));
}

}  // namespace

template <class Archive>
void elements(Archive& archive, Of<Archive, TimePoint>& point) {
  archive.item(point.size, from_1);
  archive.item(point.seconds, json::amount);
  archive.refuse_other_sizes("is not [size, seconds]");
}

template <class Archive>
void members(Archive& archive, Of<Archive, TimeCurve>& curve) {
  archive("kind", curve.work.kind);
  types(archive, curve.work);
  flags(archive, curve.work);
  archive("width", curve.work.width, from_0);
  archive("depth", curve.work.depth, from_0);
  archive("points", curve.points);
  if constexpr (Archive::is_reading) check(archive, curve.points);
}

template <class Archive>
void members(Archive& archive, Of<Archive, GroupProfile>& group) {
  // No group is larger; what a file says beyond it is this many.
  constexpr std::int64_t max_ranks = 1 << 20;
  std::int64_t num_gpus = group.shape.num_gpus;
  std::int64_t num_nodes = group.shape.num_nodes;
  archive("num_gpus", num_gpus, from_1);
  archive("num_nodes", num_nodes, from_1);
  if constexpr (Archive::is_reading)
    group.shape = {static_cast<int>(std::min(max_ranks, num_gpus)),
                   static_cast<int>(std::min(max_ranks, num_nodes))};
  archive("slowdown", group.slowdown, json::amount);
  archive("collectives", group.collectives);
  if constexpr (Archive::is_reading) {
    refuse_above(archive, group.slowdown, largest_ratio, "", "/slowdown");
    check(archive, "collectives", group.collectives, true);
  }
}

template <class Archive>
void members(Archive& archive, Of<Archive, DeviceProfile>& profile) {
  archive.rules({.missing = "\"{}\" is missing", .no_list = "is {}, not a list"});
  archive.constant("format", format_name, "is not \"dstune-mpi device profile\"");
  archive.constant("version", DeviceProfile::current_version,
                   "this release reads version " + std::to_string(DeviceProfile::current_version) +
                       " alone: measure again");
  archive.stop_where_wrong();  // The rest may be another format's.
  archive("machine", profile.machine);
  archive("model", profile.model);
  archive("concurrent_streams", profile.concurrent_streams);
  archive("overlap_slowdown", profile.overlap_slowdown, json::amount);
  archive("step_constant_s", profile.step_constant_s, json::amount);
  // Earlier releases did not measure it.
  archive("interpreter_s", profile.interpreter_s,
          json::Form{.low = 0, .nothing = json::Nothing::omitted, .may_be_missing = true});
  archive("kernels", profile.kernels);
  if constexpr (Archive::is_reading) {
    refuse_above(archive, profile.overlap_slowdown, largest_ratio, "", "/overlap_slowdown");
    refuse_above(archive, profile.step_constant_s, longest_s, " s", "/step_constant_s");
    refuse_above(archive, profile.interpreter_s, longest_s, " s", "/interpreter_s");
    check(archive, "kernels", profile.kernels, false);
  }
  archive("groups", profile.groups);
  // Earlier releases did not measure it.
  archive("target", profile.target);
  if constexpr (Archive::is_reading)
    if (profile.target) check(archive, *profile.target);
  archive("cluster", profile.cluster);
}

template void members(json::Writer&, const DeviceProfile&);
template void members(json::Reader&, DeviceProfile&);

json::Value to_json(const DeviceProfile& profile) {
  return json::write(profile);
}

DeviceProfile device_profile_from_json(const json::Node& node) {
  return json::read<DeviceProfile>(node);
}

}  // namespace dstune
