#include "dstune/train/workload.hpp"

#include <chrono>
#include <string>

#include <gmock/gmock.h>

#include "dstune/instrument/workloads.hpp"
#include "dstune/model/parameter_table.hpp"
#include "thread_group.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

/// One experiment on ranks that are threads; the given workloads use no device.
struct Setting {
  WorkloadSpec spec;
  ModelSpec model;
  TrainingConfig config;
  std::string name = "z1_gas1";
  MeasureOptions options{3, 5, 10};

  Setting() {
    config.micro_batch = 2;
    config.accumulation_steps = 3;
    config.sequence_length = 8;
    model.hidden_size = 16;
    model.num_layers = 1;
    model.num_heads = model.num_kv_heads = 2;
    model.head_size = 8;
    model.intermediate_size = 64;
    model.vocab_size = 11;
    model.max_positions = 8;
  }
  static Setting replay(const char* table) {
    Setting setting;
    setting.spec.kind = WorkloadKind::replay;
    setting.spec.table_path = "table.json";
    setting.spec.table = json::Value::parse(table);
    return setting;
  }
  Waiter waiter;

  [[nodiscard]] Measurement run(int ranks = 1) const {
    Measurement leaders;
    const auto thrown = test::run_ranks(ranks, [&](ProcessGroup& group) {
      const auto workload =
          make_given_steps(spec, {&model, &config, &name, 0, nullptr, &group, &waiter});
      Measurement mine = measure(*workload, group, options, {});
      if (group.group_rank() == 0) leaders = std::move(mine);
    });
    for (const std::exception_ptr& error : thrown) EXPECT_EQ(error, nullptr);
    return leaders;
  }
};

TEST(SyntheticWorkloadTest, StepsOfNoLengthTakeNoTime) {
  Setting setting;
  setting.spec.kind = WorkloadKind::synthetic;
  const auto began = std::chrono::steady_clock::now();
  const Measurement result = setting.run(4);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  EXPECT_EQ(result.status, Status::ok);
  EXPECT_EQ(result.step_times_s, std::vector<double>(8, 1e-9));
  EXPECT_EQ(result.warmup_steps, 3);
  EXPECT_TRUE(result.losses.empty());
  EXPECT_DOUBLE_EQ(result.flops_per_step, flops_per_token(setting.model, 8) * 4 * 2 * 3 * 8);
}

TEST(SyntheticWorkloadTest, StepsTakeTheirTime) {
  Setting setting;
  setting.spec.kind = WorkloadKind::synthetic;
  setting.spec.step_time_s = 0.02;
  const auto began = std::chrono::steady_clock::now();
  const Measurement result = setting.run(2);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(result.step_times_s, std::vector<double>(8, 0.02));
  EXPECT_GE(wall.count(), 8 * 0.02);
}

TEST(ReplayWorkloadTest, ReportsTheRecordedStepTimeWithoutWaiting) {
  const Measurement result =
      Setting::replay(R"({"z1_gas1": {"step_time_s": 2.5, "peak_memory_bytes": 4096}})").run(2);
  EXPECT_EQ(result.status, Status::ok);
  EXPECT_EQ(result.step_times_s, std::vector<double>(8, 2.5));
  EXPECT_EQ(result.peak_memory.total_bytes, 4096);
  EXPECT_GT(result.peak_memory.process_bytes, 0);
}

TEST(ReplayWorkloadTest, TheSeriesRepeatsAndItsFirstSamplesAreWarmup) {
  const Measurement result =
      Setting::replay(R"({"z1_gas1": {"step_times_s": [4, 3, 2, 2, 2.01]}})").run();
  EXPECT_THAT(result.step_times_s, testing::ElementsAre(4, 3, 2, 2, 2.01, 4, 3, 2));
  EXPECT_EQ(result.warmup_steps, 3);
}

TEST(ReplayWorkloadTest, WaitsAsLongAsTheScaleSays) {
  Setting setting = Setting::replay(R"({"z1_gas1": {"step_time_s": 1}})");
  setting.spec.time_scale = 0.01;
  const auto began = std::chrono::steady_clock::now();
  const Measurement result = setting.run();
  EXPECT_EQ(result.step_times_s, std::vector<double>(8, 1.0));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(80));
}

TEST(ReplayWorkloadTest, ReproducesARecordedStatus) {
  const Measurement oom =
      Setting::replay(R"({"z1_gas1": {"status": "out_of_memory", "reason": "31 GiB"}})").run(3);
  EXPECT_EQ(oom.status, Status::out_of_memory);
  EXPECT_THAT(oom.reason, HasSubstr("31 GiB"));
  const Measurement late =
      Setting::replay(R"({"z1_gas1": {"step_time_s": 1, "status": "timed_out"}})").run();
  EXPECT_EQ(late.status, Status::timed_out);
  EXPECT_THAT(late.reason, HasSubstr("recorded as timed_out"));
}

TEST(ReplayWorkloadTest, ANameThatIsNotInTheTableFails) {
  const Measurement result = Setting::replay(R"({"z2_gas1": {"step_time_s": 1}})").run(2);
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_THAT(result.reason, HasSubstr("table.json has no experiment z1_gas1"));
}

TEST(ReplayWorkloadTest, ARowThatIsNotAsItShouldBeFails) {
  for (const char* row :
       {R"({})", R"({"step_times_s": []})", R"({"step_time_s": "1"})", R"({"step_time_s": -1})",
        R"({"step_times_s": 1})", R"({"step_time_s": 1, "status": "fine"})",
        R"({"step_time_s": 1, "peak_memory_bytes": -4})", R"({"step_time_s": 1, "steps": 4})",
        R"([1])"}) {
    const Measurement result =
        Setting::replay((std::string(R"({"z1_gas1": )") + row + "}").c_str()).run();
    EXPECT_EQ(result.status, Status::failed) << row;
    EXPECT_THAT(result.reason, HasSubstr("/z1_gas1")) << row;
  }
}

}  // namespace
}  // namespace dstune
