#include "dstune/core/measurement.hpp"

#include <cmath>
#include <functional>
#include <limits>

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
  const json::Value value = json::write(example());
  EXPECT_EQ(value["status"], "ok");
  EXPECT_DOUBLE_EQ(value["fwd"].get<double>(), 25'000);
  EXPECT_DOUBLE_EQ(value["bwd"].get<double>(), 62'500);
  EXPECT_DOUBLE_EQ(value["step"].get<double>(), 4'000);
  EXPECT_EQ(value["warmup_steps"], 1);
  EXPECT_EQ(value["step_times_s"].size(), 3U);
  EXPECT_EQ(value["skipped_steps"], json::Value({0, 2}));
  EXPECT_EQ(value["losses"][1], 10.25);
  EXPECT_EQ(value["peak_memory_bytes"]["total"], (std::int64_t{1} << 53) + 1);
  EXPECT_EQ(value["peak_memory_bytes"]["categories"]["gradients"], 30);
  EXPECT_EQ(value["peak_memory_bytes"]["process"], 5);
  EXPECT_EQ(value["peak_memory_bytes"]["host"], 40);
  EXPECT_EQ(value["group"]["world_ranks"], json::Value({2, 3}));
  EXPECT_EQ(value["group"]["hosts"][1], "node1");
  EXPECT_EQ(value["overhead_s"]["build"], 0.001);
}

TEST(MeasurementTest, WithoutAHostsMemoryIsOfAnEarlierRelease) {
  json::Value value = json::write(example());
  value["peak_memory_bytes"].erase("host");
  EXPECT_EQ(read_back(value).peak_memory.host_bytes, 0);
}

TEST(MeasurementTest, IsReadAsWritten) {
  const Measurement before = example();
  const Measurement after = read_back(json::write(before));
  EXPECT_EQ(after.status, before.status);
  EXPECT_EQ(after.reason, before.reason);
  EXPECT_EQ(after.step_times_s, before.step_times_s);
  EXPECT_EQ(after.warmup_steps, before.warmup_steps);
  EXPECT_EQ(after.skipped_steps, before.skipped_steps);
  EXPECT_EQ(after.losses, before.losses);
  EXPECT_DOUBLE_EQ(after.forward_s, before.forward_s);
  EXPECT_DOUBLE_EQ(after.backward_s, before.backward_s);
  EXPECT_DOUBLE_EQ(after.update_s, before.update_s);
  EXPECT_EQ(after.flops_per_step, before.flops_per_step);
  EXPECT_EQ(after.peak_memory.total_bytes, before.peak_memory.total_bytes);
  EXPECT_EQ(after.peak_memory.category_bytes, before.peak_memory.category_bytes);
  EXPECT_EQ(after.peak_memory.process_bytes, before.peak_memory.process_bytes);
  EXPECT_EQ(after.peak_memory.host_bytes, before.peak_memory.host_bytes);
  EXPECT_EQ(after.world_ranks, before.world_ranks);
  EXPECT_EQ(after.hosts, before.hosts);
  EXPECT_EQ(after.overhead_s, before.overhead_s);
}

TEST(MeasurementTest, WhatGpusSayIsReadAsWritten) {
  Measurement before = example();
  EXPECT_FALSE(read_back(json::write(before)).gpu) << "processors say nothing";
  before.gpu = GpuCondition{1410, 1980, 61, 412.5, "power cap, heat"};
  before.peak_memory.gpu_bytes = 12345;
  before.peak_memory.communicator_bytes = 345;
  before.peak_memory.graph_bytes = 34;
  before.fallbacks = {"no graphs", "a slow disk"};
  before.not_comparable = "ranks 0 and 1 share a GPU";
  const Measurement after = read_back(json::write(before));
  ASSERT_TRUE(after.gpu);
  EXPECT_EQ(after.gpu->sm_clock_mhz, 1410);
  EXPECT_EQ(after.gpu->max_sm_clock_mhz, 1980);
  EXPECT_EQ(after.gpu->temperature_c, 61);
  EXPECT_EQ(after.gpu->power_w, 412.5);
  EXPECT_EQ(after.gpu->throttled_by, "power cap, heat");
  EXPECT_EQ(after.peak_memory.gpu_bytes, 12345);
  EXPECT_EQ(after.peak_memory.communicator_bytes, 345);
  EXPECT_EQ(after.peak_memory.graph_bytes, 34);
  EXPECT_EQ(after.fallbacks, before.fallbacks);
  EXPECT_EQ(after.not_comparable, before.not_comparable);
}

TEST(MeasurementTest, AnEmptyFailureIsReadAsWritten) {
  Measurement failure;
  failure.status = Status::out_of_memory;
  failure.reason = "arena: \"1 GiB\"";
  const Measurement after = read_back(json::write(failure));
  EXPECT_EQ(after.status, Status::out_of_memory);
  EXPECT_EQ(after.reason, failure.reason);
  EXPECT_TRUE(after.step_times_s.empty());
  EXPECT_TRUE(after.overhead_s.empty());
  EXPECT_TRUE(after.peak_memory.category_bytes.empty());
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

TEST(MeasurementTest, EarlierReleasesSkippedNoSteps) {
  json::Value value = json::write(example());
  value.erase("skipped_steps");
  EXPECT_TRUE(read_back(value).skipped_steps.empty());
}

}  // namespace
}  // namespace dstune
