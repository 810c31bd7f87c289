#include <algorithm>
#include <array>
#include <string_view>

#include "dstune/base/error.hpp"
#include "dstune/predict/device_profile.hpp"

namespace dstune {
namespace {

using json::Node;
using json::Value;

constexpr std::string_view format_name = "dstune-mpi device profile";
constexpr std::array<std::string_view, 5> type_names{"f32", "bf16", "f16", "i32", "i8"};
constexpr std::int64_t most = std::int64_t{1} << 53;

std::string text(DType type) {
  return std::string(type_names.at(static_cast<std::size_t>(type)));
}

Value write(const TimeCurve& curve) {
  const Work& work = curve.work;
  Value flags = Value::array();
  for (int flag = 0; flag < num_work_flags; ++flag) {
    if (work.has(static_cast<WorkFlag>(flag)))
      flags.push_back(to_text(static_cast<WorkFlag>(flag)));
  }
  Value points = Value::array();
  for (const TimePoint& point : curve.points)
    points.push_back(Value::array({point.size, point.seconds}));
  return {
      {"kind", to_text(work.kind)}, {"types", Value::array({text(work.type), text(work.out_type)})},
      {"flags", std::move(flags)},  {"width", work.width},
      {"depth", work.depth},        {"points", std::move(points)}};
}

Value write(const std::vector<TimeCurve>& curves) {
  Value list = Value::array();
  for (const TimeCurve& curve : curves) list.push_back(write(curve));
  return list;
}

/// Reads members that must be there; what is wrong with them becomes a problem.
class Reader {
 public:
  explicit Reader(json::Problems& problems) : problems_(problems) {}

  DeviceProfile profile(const Node& node) {
    DeviceProfile profile;
    if (!node.expect_object(problems_)) return profile;
    node.refuse_unknown_keys(problems_,
                             {"format", "version", "machine", "model", "concurrent_streams",
                              "overlap_slowdown", "step_constant_s", "kernels", "groups"});
    if (const auto format = member(node, "format"); format && format->value() != format_name)
      problems_.add(format->problem("is not \"" + std::string(format_name) + "\""));
    if (const auto version = member(node, "version");
        version && version->value() != DeviceProfile::current_version) {
      problems_.add(version->problem("this release reads version " +
                                     std::to_string(DeviceProfile::current_version) +
                                     " alone: measure again"));
    }
    problems_.check();  // What follows is another format's.
    if (const auto machine = member(node, "machine")) profile.machine = machine->value();
    if (const auto model = member(node, "model"))
      profile.model = model->string(problems_).value_or("");
    if (const auto streams = member(node, "concurrent_streams"))
      profile.concurrent_streams = streams->boolean(problems_).value_or(false);
    profile.overlap_slowdown = number(node, "overlap_slowdown", 0);
    profile.step_constant_s = number(node, "step_constant_s", 0);
    profile.kernels = curves(node, "kernels", false);
    for (const Node& group : list(node, "groups")) profile.groups.push_back(read_group(group));
    return profile;
  }

 private:
  std::optional<Node> member(const Node& node, const char* key) {
    auto found = node.find(key);
    if (!found) problems_.add(node.problem('"' + std::string(key) + "\" is missing"));
    return found;
  }
  double number(const Node& node, const char* key, double low) {
    const auto found = member(node, key);
    return found ? found->number(problems_, low).value_or(low) : low;
  }
  std::int64_t integer(const Node& node, const char* key, std::int64_t low) {
    const auto found = member(node, key);
    return found ? found->integer(problems_, low, most).value_or(low) : low;
  }
  std::vector<Node> elements(const Node& node) {
    if (node.is_array()) return node.elements();
    problems_.add(node.problem("is " + json::type_words(node.value()) + ", not a list"));
    return {};
  }
  std::vector<Node> list(const Node& node, const char* key) {
    const auto found = member(node, key);
    return found ? elements(*found) : std::vector<Node>{};
  }

  GroupProfile read_group(const Node& node) {
    GroupProfile group;
    if (!node.expect_object(problems_)) return group;
    node.refuse_unknown_keys(problems_, {"num_gpus", "num_nodes", "slowdown", "collectives"});
    constexpr std::int64_t most_ranks = 1 << 20;
    const auto count = [&](const char* key) {
      return static_cast<int>(std::min(most_ranks, integer(node, key, 1)));
    };
    group.shape = {count("num_gpus"), count("num_nodes")};
    group.slowdown = number(node, "slowdown", 0);
    group.collectives = curves(node, "collectives", true);
    return group;
  }

  std::vector<TimeCurve> curves(const Node& node, const char* key, bool of_group) {
    std::vector<TimeCurve> curves;
    for (const Node& element : list(node, key)) {
      if (!element.expect_object(problems_)) continue;
      curves.push_back(curve(element));
      if (is_collective(curves.back().work.kind) != of_group) {
        problems_.add(element.problem(of_group ? "is no collective"
                                               : "is a collective: they belong to a group"));
      }
    }
    return curves;
  }

  TimeCurve curve(const Node& node) {
    TimeCurve curve;
    node.refuse_unknown_keys(problems_, {"kind", "types", "flags", "width", "depth", "points"});
    if (const auto kind = member(node, "kind")) {
      const auto known = work_kind(kind->string(problems_).value_or(""));
      if (!known) problems_.add(kind->problem("is no kind of work"));
      curve.work.kind = known.value_or(WorkKind::add);
    }
    const auto types = list(node, "types");
    if (types.size() == 2) {
      curve.work.type = type(types[0]);
      curve.work.out_type = type(types[1]);
    } else {
      problems_.add(node.problem("\"types\" are those of what is read and of what is written"));
    }
    for (const Node& element : list(node, "flags")) flag(element, curve.work);
    curve.work.width = integer(node, "width", 0);
    curve.work.depth = integer(node, "depth", 0);
    curve.points = points(node);
    return curve;
  }

  DType type(const Node& node) {
    const auto found = std::find(type_names.begin(), type_names.end(),
                                 std::string_view(node.string(problems_).value_or("")));
    if (found != type_names.end()) return static_cast<DType>(found - type_names.begin());
    problems_.add(node.problem("is no type: f32, bf16, f16, i32"));
    return DType::f32;
  }

  void flag(const Node& node, Work& work) {
    const auto name = node.string(problems_).value_or("");
    for (int flag = 0; flag < num_work_flags; ++flag) {
      if (to_text(static_cast<WorkFlag>(flag)) == name)
        return work.set(static_cast<WorkFlag>(flag));
    }
    problems_.add(node.problem("is no flag of work"));
  }

  std::vector<TimePoint> points(const Node& node) {
    std::vector<TimePoint> points;
    for (const Node& element : list(node, "points")) {
      const auto pair = elements(element);
      if (pair.size() != 2) {
        problems_.add(element.problem("is not [size, seconds]"));
        continue;
      }
      const TimePoint point{pair[0].integer(problems_, 1, most).value_or(1),
                            pair[1].number(problems_, 0).value_or(0)};
      if (!points.empty() && point.size <= points.back().size)
        problems_.add(element.problem("sizes rise from point to point"));
      points.push_back(point);
    }
    if (points.empty()) problems_.add(node.problem("a curve has a point at least"));
    return points;
  }

  json::Problems& problems_;
};

}  // namespace

Value to_json(const DeviceProfile& profile) {
  Value groups = Value::array();
  for (const GroupProfile& group : profile.groups) {
    groups.push_back({{"num_gpus", group.shape.num_gpus},
                      {"num_nodes", group.shape.num_nodes},
                      {"slowdown", group.slowdown},
                      {"collectives", write(group.collectives)}});
  }
  return {{"format", format_name},
          {"version", DeviceProfile::current_version},
          {"machine", profile.machine},
          {"model", profile.model},
          {"concurrent_streams", profile.concurrent_streams},
          {"overlap_slowdown", profile.overlap_slowdown},
          {"step_constant_s", profile.step_constant_s},
          {"kernels", write(profile.kernels)},
          {"groups", std::move(groups)}};
}

DeviceProfile device_profile_from_json(const Node& node) {
  json::Problems problems;
  DeviceProfile profile = Reader(problems).profile(node);
  problems.check();
  return profile;
}

}  // namespace dstune
