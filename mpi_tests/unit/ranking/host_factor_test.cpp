// The factor of the host's costs by work like the interpreter's.
#include <cmath>

#include <gtest/gtest.h>

#include "dstune/ranking/calibration.hpp"

namespace dstune {
namespace {

/// A pass takes 4 ms there, and the host's costs are half of the constants'.
HostReference reference(double deviation = 0.5) {
  return {4e-3, 0.5, deviation, "a machine"};
}

/// Constants whose costs are known to 10 %.
TargetConstants some_host_constants() {
  TargetConstants all;
  all.scale_deviation = 0.1;
  for (std::size_t each = 0; each < num_overheads; ++each) {
    all.time.costs_s[each] = 1e-3 * static_cast<double>(each + 1);
    all.deviations_s[each] = 1e-4 * static_cast<double>(each + 1);
  }
  return all;
}

TEST(HostFactor, ASureMeasurementIsTaken) {
  const TargetConstants found = with_host_factor(some_host_constants(), 8e-3, reference(1e-6));
  EXPECT_NEAR(found.host_factor, 1, 1e-6) << "twice as slow as where costs are half";
  EXPECT_NEAR(found.host_deviation, 0, 1e-5);
  EXPECT_NEAR(with_host_factor(some_host_constants(), 4e-3, reference(1e-6)).host_factor, 0.5,
              1e-6);
}

TEST(HostFactor, LiesBetweenWhatShipsAndTheMeasurement) {
  // Both are worth the same.
  const Policy::Calibrating policy;
  const TargetConstants found =
      with_host_factor(some_host_constants(), 4e-3, reference(policy.before_own_runs.host));
  EXPECT_NEAR(found.host_factor, std::sqrt(0.5), 1e-9);
  EXPECT_NEAR(found.host_deviation, policy.before_own_runs.host / std::sqrt(2), 1e-9);
  EXPECT_NEAR(with_host_factor(some_host_constants(), 4e-3, reference(1e6)).host_factor, 1, 1e-6);
}

TEST(HostFactor, ChangesTheHostsCostsAndTheirErrorsAlone) {
  const TargetConstants before = some_host_constants();
  const TargetConstants found = with_host_factor(before, 6e-3, reference());
  const double factor = found.host_factor;
  EXPECT_LT(factor, 0.9);
  for (std::size_t each = 0; each < num_overheads; ++each) {
    const auto overhead = static_cast<Overhead>(each);
    const double by = is_of_network(overhead) || overhead == Overhead::recompute ? 1 : factor;
    EXPECT_DOUBLE_EQ(found.time.costs_s[each], by * before.time.costs_s[each]) << each;
    EXPECT_DOUBLE_EQ(found.deviations_s[each], by * before.deviations_s[each]) << each;
  }
  EXPECT_EQ(found.time.scale, before.time.scale);
}

TEST(HostFactor, NothingChangesWhereItTellsNothing) {
  EXPECT_EQ(with_host_factor(some_host_constants(), 0, reference()), some_host_constants())
      << "an older profile";
  TargetConstants measured = some_host_constants();
  measured.num_engines = 9;
  EXPECT_EQ(with_host_factor(measured, 8e-3, reference()), measured) << "tiny engines win";
  TargetConstants of_gpu = some_host_constants();
  of_gpu.time.is_device_behind_host = true;
  EXPECT_EQ(with_host_factor(of_gpu, 8e-3, reference()), of_gpu) << "no such reference";
  const TargetConstants once = with_host_factor(some_host_constants(), 8e-3, reference());
  EXPECT_EQ(with_host_factor(once, 8e-3, reference()), once) << "it is in them already";
}

}  // namespace
}  // namespace dstune
