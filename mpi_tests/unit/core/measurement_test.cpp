#include "dstune/core/measurement.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/archive.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

Measurement example() {
  Measurement measurement;
  measurement.status = Status::ok;
  measurement.step_times_s = {0.5, 0.1, 1.0 / 3};
  measurement.warmup_steps = 1;
  measurement.skipped_steps = {0, 2};
  measurement.losses = {10.5, 10.25, 1e-300};
  measurement.forward_s = 0.025;
  measurement.backward_s = 0.0625;
  measurement.update_s = 0.004;
  measurement.flops_per_step = 1.5e18;
  measurement.peak_memory = {
      (std::int64_t{1} << 53) + 1, {{"parameters", 70}, {"gradients", 30}}, 5, 40};
  measurement.world_ranks = {2, 3};
  measurement.hosts = {"node1", "node1"};
  measurement.overhead_s = {{"build", 0.001}};
  return measurement;
}

Measurement read_back(const json::Value& value) {
  const json::Document document = json::Document::parse(value.dump(), "metrics.json");
  return json::read<Measurement>(document.node());
}

TEST(MeasurementTest, HasTheKeysAndUnitsOfMetricsJson) {
  const json::Value expected = json::Value::parse(R"({
      "status": "ok", "reason": "", "fwd": 25000.0, "bwd": 62500.0, "step": 4000.0,
      "flops_per_step": 1.5e18, "step_times_s": [0.5, 0.1, 0.3333333333333333], "warmup_steps": 1,
      "skipped_steps": [0, 2], "losses": [10.5, 10.25, 1e-300],
      "peak_memory_bytes": {"total": 9007199254740993, "process": 5, "host": 40,
                            "categories": {"gradients": 30, "parameters": 70}},
      "group": {"world_ranks": [2, 3], "hosts": ["node1", "node1"]},
      "overhead_s": {"build": 0.001}})");
  const std::map<std::string, json::Value> found = json::write(example()).flatten();
  const std::map<std::string, json::Value> wanted = expected.flatten();
  EXPECT_EQ(found, wanted) << "whatever their order";
}

TEST(MeasurementTest, EarlierReleasesHaveNeitherAHostsMemoryNorSkippedSteps) {
  json::Value value = json::write(example());
  value["peak_memory_bytes"].erase("host");
  value.erase("skipped_steps");
  EXPECT_EQ(read_back(value).peak_memory.host_bytes, 0);
  EXPECT_TRUE(read_back(value).skipped_steps.empty());
}

/// All that a failure and what GPUs say have beside the others.
TEST(MeasurementTest, IsReadAsWritten) {
  Measurement failure;
  failure.status = Status::out_of_memory;
  failure.reason = "arena: \"1 GiB\"";
  Measurement on_gpu = example();
  on_gpu.gpu = GpuCondition{1410, 1980, 61, 412.5, "power cap, heat"};
  on_gpu.peak_memory.gpu_bytes = 12345;
  on_gpu.peak_memory.communicator_bytes = 345;
  on_gpu.peak_memory.graph_bytes = 34;
  on_gpu.fallbacks = {"no graphs", "a slow disk"};
  on_gpu.not_comparable = "ranks 0 and 1 share a GPU";
  std::set<std::string> keys;
  for (const Measurement& before : {example(), failure, on_gpu}) {
    const json::Value value = json::write(before);
    EXPECT_EQ(json::write(read_back(value)), value);
    const json::Value flat = value.flatten();
    for (const auto& [pointer, member] : flat.items()) keys.insert(pointer);
  }
  for (const char* key :
       {"/reason", "/gpu/sm_clock_mhz", "/gpu/max_sm_clock_mhz", "/gpu/power_w",
        "/gpu/temperature_c", "/gpu/throttled_by", "/fallbacks/1", "/not_comparable",
        "/peak_memory_bytes/gpu", "/peak_memory_bytes/communicators", "/peak_memory_bytes/graphs"})
    EXPECT_TRUE(keys.contains(key)) << key;
  EXPECT_FALSE(read_back(json::write(example())).gpu) << "processors say nothing";
}

TEST(MeasurementTest, ALossThatIsNoNumberIsNull) {
  Measurement diverged = example();
  diverged.losses = {1.5, std::nan(""), std::numeric_limits<double>::infinity()};
  const json::Value value = json::write(diverged);
  EXPECT_TRUE(value["losses"][1].is_null());
  EXPECT_TRUE(value["losses"][2].is_null());
  const Measurement after = read_back(value);
  EXPECT_EQ(after.losses[0], 1.5);
  EXPECT_TRUE(std::isnan(after.losses[1]));
}

TEST(MeasurementTest, RefusesWhatIsNoMeasurement) {
  const auto refusal = [](const std::function<void(json::Value&)>& damage) -> std::string {
    json::Value value = json::write(example());
    damage(value);
    try {
      (void)read_back(value);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal([](auto& v) { v["status"] = "fine"; }), HasSubstr("/status: \"fine\" is no"));
  EXPECT_THAT(refusal([](auto& v) { v["statsu"] = "ok"; }), HasSubstr("did you mean \"status\"?"));
  EXPECT_THAT(refusal([](auto& v) { v["warmup_steps"] = 4; }), HasSubstr("from 0 to 3, got 4"));
  EXPECT_THAT(refusal([](auto& v) { v["step_times_s"][0] = -1; }), HasSubstr("/step_times_s/0: "));
  EXPECT_THAT(refusal([](auto& v) { v["losses"] = 3; }), HasSubstr("expected a list"));
  EXPECT_THAT(refusal([](auto& v) { v["skipped_steps"][1] = 0.5; }), HasSubstr("/skipped_steps/1"));
  EXPECT_THAT(refusal([](auto& v) { v["losses"][0] = "x"; }), HasSubstr("/losses/0: "));
  EXPECT_THAT(refusal([](auto& v) { v["peak_memory_bytes"] = 3; }), HasSubstr("an object"));
  EXPECT_THAT(refusal([](auto& v) { v["peak_memory_bytes"]["total"] = 4.5; }), HasSubstr("4.5"));
  EXPECT_THAT(refusal([](auto& v) { v["group"]["world_ranks"][1] = -1; }),
              HasSubstr("/group/world_ranks/1: "));
  EXPECT_THAT(refusal([](auto& v) { v["overhead_s"]["build"] = nullptr; }), HasSubstr("a number"));
  EXPECT_THAT(refusal([](auto& v) { v = 7; }), HasSubstr("expected an object, got 7"));
  const json::Value whole = json::write(example());
  for (const auto& member : whole.items()) {
    // Journals of earlier releases have none.
    if (member.key() == "skipped_steps") continue;
    EXPECT_THAT(refusal([&](auto& v) { v.erase(member.key()); }),
                HasSubstr("the key \"" + member.key() + "\" is missing"));
  }
}

}  // namespace
}  // namespace dstune
