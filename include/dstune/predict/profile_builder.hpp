#pragma once
/// Makes a DeviceProfile from operations that were timed inside real steps, where caches, memory
/// and neighbours are as they will be. Local.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dstune/plan/trace.hpp"
#include "dstune/predict/device_profile.hpp"

namespace dstune {

class ProfileBuilder {
 public:
  /// Steady steps of one plan on this rank: traces of some, and what whole steps without a trace
  /// took, slowest rank. At least one of each.
  void add(const StepPlan& plan, std::span<const StepTrace> traces,
           std::span<const double> steps_s);
  /// Work that was timed on its own; where the same was traced the trace counts.
  void add_alone(const Work& work, double seconds);

  /// What this rank knows, as the profile of one group of that shape.
  [[nodiscard]] DeviceProfile build(GroupShape shape) const;

 private:
  struct Sum {
    double seconds = 0;
    std::int64_t count = 0;
  };
  struct Curve {
    Work work;
    std::map<std::int64_t, Sum> traced, alone;  ///< by size
  };
  Curve& curve_of(const Work& work);

  std::vector<Curve> curves_;
  double operations_s_ = 0;  ///< of one step of each plan, by its operations
  double steps_s_ = 0;       ///< … and as a whole
};

}  // namespace dstune
