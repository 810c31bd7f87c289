#pragma once
/// The measured times of a machine: of kernels by size, of collectives by group and size. Plain
/// data, written and read as JSON (docs/fields.md, "Device profile"). Knows no clock: train and
/// tune measure. All functions: Local.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/core/devices.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/policy.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {

/// A measured time.
struct TimePoint {
  std::int64_t size = 0;  ///< as Work's
  double seconds = 0;
  bool operator==(const TimePoint&) const = default;
};

/// Times of work that differs in size alone, by rising size. For a collective this is a cost α + β
/// bytes in pieces.
struct TimeCurve {
  Work work;  ///< its size is 0
  std::vector<TimePoint> points;
  bool operator==(const TimeCurve&) const = default;

  /// Between two points on the line through them; below the first on the line through the first
  /// two, but no less than in proportion and no more than the first; above the last in proportion.
  /// At least one point.
  [[nodiscard]] double seconds(std::int64_t size) const;
};

/// The measured times of groups of a shape, running beside each other as experiments do.
struct GroupProfile {
  GroupShape shape;
  /// A step over the sum of its operations: what interrupts a rank, and what its peers wait for it.
  double slowdown = 1;
  std::vector<TimeCurve> collectives;
  bool operator==(const GroupProfile&) const = default;
};

struct DeviceProfile {
  static constexpr int current_version = 1;

  json::Value machine;  ///< fingerprint: devices, hosts, threads; not interpreted
  std::string model;    ///< whose shapes were measured
  /// Streams run beside each other. On CPUs they do not: a rank runs its program in order.
  bool concurrent_streams = false;
  /// Compute that runs beside a collective takes (1 + this) times as long. It counts for concurrent
  /// streams only.
  double overlap_slowdown = 0;
  double step_constant_s = 0;  ///< of a step beside its operations
  /// Processor time of a pass of work like that of a Python interpreter, on one thread; 0: it was
  /// not measured.
  double interpreter_s = 0;
  std::vector<TimeCurve> kernels;
  std::vector<GroupProfile> groups;  ///< rising shapes
  /// The costs of DeepSpeed's work there; nothing if they were not measured.
  std::optional<TargetConstants> target{};
  /// The machine as it is known beside what was measured: names and sizes, and rates as they are
  /// published. Work that no curve tells takes as long as these rates say.
  std::optional<Cluster> cluster{};
  bool operator==(const DeviceProfile&) const = default;

  [[nodiscard]] bool empty() const { return kernels.empty() && !cluster; }
};

/// A profile of nothing but published rates, completed(): streams of GPUs.
[[nodiscard]] DeviceProfile published_profile(const Cluster& cluster);

/// The list of members (base/archive.hpp).
template <class Archive>
void members(Archive& archive, json::Of<Archive, DeviceProfile>& profile);
/// Writes the profile like --profile-out.
json::Value to_json(const DeviceProfile& profile);
/// Throws InputError: another format or version, unknown keys, times that are none, sizes that do
/// not rise.
DeviceProfile device_profile_from_json(const json::Node& node);

/// The mean of the profiles of ranks that measured side by side: curves that one lacks are the
/// others', points of equal size are averaged. At least one.
DeviceProfile merge_profiles(std::span<const DeviceProfile> profiles);

/// The least of what one rank measured several times: others can only make work longer. Curves that
/// one lacks are the others'. At least one, of equal groups.
DeviceProfile least_of_profiles(std::span<const DeviceProfile> profiles);

/// Times of which the mean is wanted.
struct TimeSum {
  double seconds = 0;
  std::int64_t count = 0;
  void add(double another_s) {
    seconds += another_s;
    ++count;
  }
};

/// Makes a DeviceProfile from operations that were timed inside real steps, where caches, memory
/// and neighbours are as they will be.
class ProfileBuilder {
 public:
  explicit ProfileBuilder(const Policy::Predicting& policy = default_policy().predicting)
      : policy_(&policy) {}

  /// Steady steps of one plan on this rank: traces of some, and what whole steps without a trace
  /// took, slowest rank. At least one of each.
  void add(const StepPlan& plan, std::span<const StepTrace> traces,
           std::span<const double> steps_s);
  /// Work that was timed on its own; where the same was traced the trace counts.
  void add_alone(const Work& work, double seconds);

  /// Returns the knowledge of this rank as the profile of one group of that shape.
  [[nodiscard]] DeviceProfile build(GroupShape shape) const;

 private:
  struct Curve {
    Work work;
    std::map<std::int64_t, TimeSum> traced, alone;  ///< by size
  };
  Curve& curve_of(const Work& work);

  const Policy::Predicting* policy_;
  std::vector<Curve> curves_;
  double operations_s_ = 0;  ///< of one step of each plan, by its operations
  double steps_s_ = 0;       ///< … and as a whole
};

}  // namespace dstune
