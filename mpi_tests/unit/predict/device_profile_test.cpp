#include "dstune/predict/device_profile.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/model/parameter_table.hpp"
#include "profiles.hpp"

namespace dstune {
namespace {

DeviceProfile read(const std::string& text) {
  const json::Document document = json::Document::parse(text, "profile.json");
  return device_profile_from_json(document.node());
}

DeviceProfile measured() {
  DeviceProfile profile = test::formula_profile(
      test::tiny_gpt2(), {test::tiny_config(0), test::tiny_config(3)}, {2, 1}, 1.25);
  profile.machine = {{"kind", "cpu"}};
  profile.model = "tiny";
  profile.step_constant_s = 1e-5;
  return profile;
}

TEST(TimeCurveTest, ReadsBetweenAndBeyondItsPoints) {
  const TimeCurve curve{{}, {{100, 2.0}, {200, 3.0}, {400, 4.0}}};
  EXPECT_DOUBLE_EQ(curve.seconds(100), 2.0);
  EXPECT_DOUBLE_EQ(curve.seconds(150), 2.5);
  EXPECT_DOUBLE_EQ(curve.seconds(300), 3.5);
  EXPECT_DOUBLE_EQ(curve.seconds(800), 8.0);  // in proportion
  EXPECT_DOUBLE_EQ(curve.seconds(50), 1.5);   // on the first line
}

TEST(TimeCurveTest, BelowItsPointsStaysBetweenProportionAndTheFirst) {
  const TimeCurve steep{{}, {{100, 1.0}, {200, 5.0}}};
  EXPECT_DOUBLE_EQ(steep.seconds(50), 0.5);
  const TimeCurve falling{{}, {{100, 1.0}, {200, 0.5}}};
  EXPECT_DOUBLE_EQ(falling.seconds(50), 1.0);
  const TimeCurve single{{}, {{100, 1.0}}};
  EXPECT_DOUBLE_EQ(single.seconds(50), 0.5);
}

TEST(DeviceProfileTest, IsReadAsItIsWritten) {
  const DeviceProfile profile = measured();
  EXPECT_EQ(read(to_json(profile).dump()), profile);
  EXPECT_GT(profile.kernels.size(), 20U);
  EXPECT_GT(profile.groups.at(0).collectives.size(), 1U);
}

TEST(DeviceProfileTest, RefusesWhatItDoesNotUnderstand) {
  const auto refuses = [](const char* pointer, const json::Value& value, const char* expected) {
    json::Value document = to_json(measured());
    document[json::Value::json_pointer(pointer)] = value;
    try {
      read(document.dump());
      ADD_FAILURE() << pointer << " is accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  };
  refuses("/format", "something else", "dstune-mpi device profile");
  refuses("/version", 2, "version 1");
  refuses("/surprise", 1, "surprise");
  refuses("/kernels/0/kind", "gemm", "no kind of work");
  refuses("/kernels/0/kind", "all_gather", "collective");
  refuses("/kernels/0/types", json::Value::array({"f32", "f64"}), "no type");
  refuses("/kernels/0/flags", json::Value::array({"fast"}), "no flag");
  refuses("/kernels/0/points", json::Value::array(), "a point at least");
  refuses("/kernels/0/points", json::Value::parse("[[2, 1.0], [2, 1.5]]"), "rise");
  refuses("/kernels/0/points", json::Value::parse("[[2, -1.0]]"), "points/0/1");
  refuses("/groups/0/num_gpus", 0, "num_gpus");
  const char* const above_a_day = "1e+300 s can not have been measured, since it is above 86400";
  refuses("/kernels/0/points/0/1", 1e300, above_a_day);
  refuses("/kernels/0/points/0/1", 1e300, "/kernels/0/points/0/1");
  refuses("/kernels/0/points/0/1", "NaN", "/kernels/0/points/0/1");
  refuses("/groups/0/collectives/0/points/0/1", 1e300, "/groups/0/collectives/0/points/0/1");
  refuses("/groups/0/slowdown", 1e300, "/groups/0/slowdown");
  refuses("/step_constant_s", 1e300, above_a_day);
  refuses("/interpreter_s", 1e300, above_a_day);
  refuses("/overlap_slowdown", 1e300, "measure again with --profile-out");
  const json::Value constants = json::write(target_constants(false));
  const auto refuses_constants = [&](const char* pointer, const json::Value& value) {
    json::Value changed = constants;
    changed[json::Value::json_pointer(pointer)] = value;
    refuses("/target", changed, (std::string("/target") + pointer).c_str());
  };
  refuses_constants("/costs_s/module_call", 1e300);
  refuses_constants("/costs_s/module_call", -1);
  refuses_constants("/costs_s/module_call", "NaN");
  refuses_constants("/scale/fp32", 1e300);
  refuses_constants("/deviations_s/module_call", 1e300);
  refuses_constants("/error", 1e300);
  refuses_constants("/scale_deviation", 1e300);
  refuses("/groups/0/collectives/0/kind", "matmul", "no collective");
}

TEST(DeviceProfileTest, AProfileThatDoesNotKnowTheInterpretersWorkIsRead) {
  DeviceProfile profile = measured();
  EXPECT_FALSE(to_json(profile).contains("interpreter_s"));
  EXPECT_EQ(read(to_json(profile).dump()).interpreter_s, 0);
  profile.interpreter_s = 0.004;
  EXPECT_EQ(read(to_json(profile).dump()).interpreter_s, 0.004);
}

TEST(DeviceProfileTest, RanksThatMeasuredTheInterpretersWorkTellIt) {
  std::vector<DeviceProfile> profiles(3);
  EXPECT_EQ(merge_profiles(profiles).interpreter_s, 0);
  EXPECT_EQ(least_of_profiles(profiles).interpreter_s, 0);
  profiles[1].interpreter_s = 0.004;
  profiles[2].interpreter_s = 0.002;
  EXPECT_DOUBLE_EQ(merge_profiles(profiles).interpreter_s, 0.003);
  EXPECT_DOUBLE_EQ(least_of_profiles(profiles).interpreter_s, 0.002);
}

TEST(DeviceProfileTest, MergesWhatRanksMeasured) {
  const Work work{.kind = WorkKind::add};
  Work other = work;
  other.kind = WorkKind::copy;
  const auto profile = [&](double seconds, double slowdown) {
    DeviceProfile one;
    one.kernels = {{work, {{100, seconds}}}};
    one.groups = {{{2, 1}, slowdown, {}}};
    return one;
  };
  std::vector<DeviceProfile> profiles{profile(1, 1.0), profile(3, 1.5)};
  profiles[1].kernels[0].points.push_back({200, 5});
  profiles[1].kernels.push_back({other, {{7, 7}}});
  profiles[1].groups.push_back({{4, 1}, 2, {}});
  const DeviceProfile merged = merge_profiles(profiles);
  ASSERT_EQ(merged.kernels.size(), 2U);
  EXPECT_EQ(merged.kernels[0].points, (std::vector<TimePoint>{{100, 2}, {200, 5}}));
  EXPECT_EQ(merged.kernels[1].points, (std::vector<TimePoint>{{7, 7}}));
  ASSERT_EQ(merged.groups.size(), 2U);
  EXPECT_DOUBLE_EQ(merged.groups[0].slowdown, 1.25);
  EXPECT_DOUBLE_EQ(merged.groups[1].slowdown, 2);
}

TEST(DeviceProfileTest, TheLeastOfSeveralRoundsCounts) {
  const Work work{.kind = WorkKind::add};
  const auto round = [&](std::vector<TimePoint> points, double slowdown) {
    DeviceProfile one;
    one.kernels = {{work, std::move(points)}};
    one.groups = {{{1, 1}, slowdown, {}}};
    return one;
  };
  // Each round was disturbed somewhere else, and the second got further.
  const std::vector rounds{round({{100, 2}, {200, 9}}, 3), round({{100, 8}, {200, 4}, {300, 6}}, 1),
                           round({{100, 3}}, 2)};
  const DeviceProfile least = least_of_profiles(rounds);
  ASSERT_EQ(least.kernels.size(), 1U);
  EXPECT_EQ(least.kernels[0].points, (std::vector<TimePoint>{{100, 2}, {200, 4}, {300, 6}}));
  ASSERT_EQ(least.groups.size(), 1U);
  EXPECT_DOUBLE_EQ(least.groups[0].slowdown, 1);
}

TEST(ProfileBuilderTest, TakesTheMedianOfTracesAndTheWholeStepsSlowdown) {
  // The fixture's second trace is five times as slow as the others.
  const DeviceProfile profile = measured();
  for (const TimeCurve& curve : profile.kernels) {
    for (const TimePoint& point : curve.points) {
      Work work = curve.work;
      work.size = point.size;
      EXPECT_NEAR(point.seconds, test::formula_s(work), 1e-12);
    }
  }
  EXPECT_NEAR(profile.groups.at(0).slowdown, 1.25, 1e-9);
}

TEST(ProfileBuilderTest, PrefersTracesToWorkTimedAlone) {
  const StepPlan plan = test::build(test::tiny_gpt2(), test::tiny_config(0), 2);
  ProfileBuilder builder;
  const std::vector<StepTrace> traces{test::formula_trace(plan)};
  builder.add(plan, traces, std::vector{1.0});
  Work work{.kind = WorkKind::all_reduce};
  const std::int64_t traced_bytes = 4 * parameter_count(test::tiny_gpt2());
  for (const std::int64_t size : {traced_bytes / 4, traced_bytes, 4 * traced_bytes}) {
    work.size = size;
    builder.add_alone(work, 100);
  }
  const DeviceProfile profile = builder.build({2, 1});
  const auto& collectives = profile.groups.at(0).collectives;
  const auto found = std::find_if(collectives.begin(), collectives.end(), [](const auto& curve) {
    return curve.work.kind == WorkKind::all_reduce;
  });
  ASSERT_NE(found, collectives.end());
  ASSERT_EQ(found->points.size(), 3U);
  EXPECT_EQ(found->points[0].seconds, 100);
  EXPECT_LT(found->points[1].seconds, 1);
  EXPECT_EQ(found->points[2].seconds, 100);
}

}  // namespace
}  // namespace dstune
