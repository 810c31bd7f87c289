#include <algorithm>
#include <string_view>

#include "dstune/base/archive.hpp"
#include "dstune/predict/device_profile.hpp"

namespace dstune {
namespace {

using json::Of;

constexpr std::string_view format_name = "dstune-mpi device profile";
constexpr double max_exact = 0x1p53;
constexpr json::Form from_0{.low = 0, .high = max_exact};
constexpr json::Form from_1{.low = 1, .high = max_exact};

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

/// What types and bounds do not say of a curve.
void check(json::Reader& archive, const std::vector<TimePoint>& points) {
  for (std::size_t i = 1; i < points.size(); ++i)
    if (points[i].size <= points[i - 1].size)
      archive.refuse("sizes rise from point to point", "/points/" + std::to_string(i));
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
  if constexpr (Archive::is_reading) check(archive, "collectives", group.collectives, true);
}

template <class Archive>
void members(Archive& archive, Of<Archive, DeviceProfile>& profile) {
  archive.rules({.missing = "\"{}\" is missing", .no_list = "is {}, not a list"});
  archive.constant("format", format_name, "is not \"dstune-mpi device profile\"");
  archive.constant("version", DeviceProfile::current_version,
                   "this release reads version " + std::to_string(DeviceProfile::current_version) +
                       " alone: measure again");
  archive.stop_where_wrong();  // What follows is another format's.
  archive("machine", profile.machine);
  archive("model", profile.model);
  archive("concurrent_streams", profile.concurrent_streams);
  archive("overlap_slowdown", profile.overlap_slowdown, json::amount);
  archive("step_constant_s", profile.step_constant_s, json::amount);
  archive("kernels", profile.kernels);
  if constexpr (Archive::is_reading) check(archive, "kernels", profile.kernels, false);
  archive("groups", profile.groups);
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
