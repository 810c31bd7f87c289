// One rank; what several do together is tested under MPI.
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/instrument/workloads.hpp"
#include "thread_group.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct PluginSetting {
  WorkloadSpec spec;
  ModelSpec model;
  TrainingConfig config;
  std::string name = "z1_gas3_tmbspg2";
  std::string ds_config = R"({"zero_optimization": {"stage": 1}})";
  MeasureOptions options{3, 5, 10};
  CpuDevice device{1 << 20, 1};
  Waiter waiter;

  /// The subject does what it does to micro-batches of 2.
  explicit PluginSetting(const std::string& action) {
    spec.kind = WorkloadKind::plugin;
    spec.library_path = std::string(DSTUNE_TEST_PLUGINS) + "/libtest_plugin_good.so";
    spec.options = {{"type", "plugin"}, {"library", "here"}, {"do", action}};
    config.zero_stage = 1;
    config.micro_batch = 2;
    config.accumulation_steps = 3;
    config.sequence_length = 8;
    config.precision = Precision::bf16;
  }
  Measurement run() {
    Measurement result;
    const auto thrown = test::run_ranks(1, [&](ProcessGroup& group) {
      const auto workload = make_plugin_workload(
          spec, {&model, &config, &name, 0, &device, &group, &waiter, &ds_config});
      result = measure(*workload, group, options, {});
    });
    if (thrown[0]) std::rethrow_exception(thrown[0]);
    return result;
  }
};

TEST(PluginWorkloadTest, ReportsWhatThePluginSays) {
  const Measurement result = PluginSetting("check collectives").run();
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  // One step warms up, five are timed.
  ASSERT_GE(result.step_times_s.size(), 6U);
  EXPECT_EQ(result.step_times_s[0], 0.001);
  EXPECT_EQ(result.losses[1], 0.5);
  EXPECT_DOUBLE_EQ(result.forward_s, 0.0004 / 3);
  EXPECT_DOUBLE_EQ(result.update_s, 0.0001);
  EXPECT_EQ(result.peak_memory.total_bytes, 2024);
  EXPECT_EQ(result.peak_memory.category_bytes.at("device"), 2000);
  EXPECT_EQ(result.peak_memory.category_bytes.at("host"), 24);
  EXPECT_DOUBLE_EQ(result.flops_per_step, 6.0 * 500 * 2 * 3 * 8);
}

TEST(PluginWorkloadTest, TellsThePluginTheConfiguration) {
  const Measurement result = PluginSetting("describe").run();
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_THAT(result.reason, HasSubstr("build: z1_gas3_tmbspg2 z1 m2 a3 g6 l8 bf16 none t1 "
                                       "b1048576 {\"zero_optimization\": {\"stage\": 1}}"));
}

TEST(PluginWorkloadTest, RecordsOutOfMemory) {
  for (const auto& [action, words] :
       {std::pair{"out of memory in build", "build: planted: 31 GiB are too many"},
        std::pair{"out of memory in step", "step 2: planted: no room for the step"},
        std::pair{"too large", "1.00 PiB of 1.00 MiB"}}) {
    const Measurement result = PluginSetting(action).run();
    EXPECT_EQ(result.status, Status::out_of_memory) << action;
    EXPECT_THAT(result.reason, HasSubstr(words));
  }
}

TEST(PluginWorkloadTest, RecordsFailuresWithTheirMessages) {
  for (const auto& [action, words] :
       {std::pair{"fail in build", "rank 10: build: planted in build"},
        std::pair{"fail in step", "rank 10: step 2: planted in step 2"},
        std::pair{"fail silently", "did not say why"},
        std::pair{"wrong status", "answered 17, which is no status"},
        std::pair{"wrong time", "step_s -1"},
        std::pair{"wrong root", "broadcast of 4 bytes from 1: the group has 1 ranks"},
        std::pair{"wrong element", "5 is no type of elements"},
        std::pair{"null buffer", "all_gather of 8 bytes a rank: a buffer is null"},
        std::pair{"say ended", "DSTUNE_ENDED, and the experiment was not over"},
        std::pair{"negative bytes", "a number below 0"}}) {
    const Measurement result = PluginSetting(action).run();
    EXPECT_EQ(result.status, Status::failed) << action;
    EXPECT_THAT(result.reason, HasSubstr(words));
  }
  EXPECT_EQ(PluginSetting("nothing").run().status, Status::ok) << "each was destroyed";
}

TEST(PluginWorkloadTest, APollHearsOfTheEnd) {
  PluginSetting at_deadline("wait for the end");
  at_deadline.waiter = Waiter(Waiter::Clock::now() + std::chrono::milliseconds(50), nullptr, true);
  try {
    at_deadline.run();
    FAIL() << "it waits for the end";
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.why(), CollectiveError::Cause::deadline);
  }
  PluginSetting aborted("wait for the end");
  aborted.waiter = Waiter(
      Waiter::Clock::time_point::max(), [] { return true; }, true);
  try {
    aborted.run();
    FAIL() << "it waits for the end";
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.why(), CollectiveError::Cause::aborted);
  }
  EXPECT_EQ(PluginSetting("nothing").run().status, Status::ok) << "both were destroyed";
}

}  // namespace
}  // namespace dstune
