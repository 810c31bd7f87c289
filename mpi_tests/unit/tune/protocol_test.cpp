#include "dstune/tune/protocol.hpp"

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "watch/injection.hpp"

namespace dstune {
namespace {

template <class T>
T round_trip(const T& message) {
  return std::get<T>(decode(encode(Message(message))));
}

TEST(ProtocolTest, AssignKeepsEveryField) {
  TrainingConfig config;
  config.zero_stage = 3;
  config.micro_batch = 7;
  config.accumulation_steps = 5;
  config.sequence_length = 33;
  config.precision = Precision::bf16;
  config.recompute = Recompute::block;
  config.reduce_bucket_size = 12345678901;
  config.overlap_comm = true;
  config.reduce_scatter = false;
  config.contiguous_gradients = false;
  config.use_multi_rank_bucket_allreduce = false;
  config.gradient_clipping = 0.25;
  config.optimizer = {OptimizerKind::adam, 1.0 / 3, 0.8, 0.95, 1e-7, 0.1};

  const auto result = round_trip(message::Assign{9,
                                                 "z3_gas5_tmbspg7",
                                                 config,
                                                 {1, 4, 6},
                                                 12.5,
                                                 "{\"a\": 1}",
                                                 {"--length", "8"},
                                                 true,
                                                 true,
                                                 7.5});

  EXPECT_EQ(result.attempt, 9U);
  EXPECT_EQ(result.experiment, "z3_gas5_tmbspg7");
  EXPECT_EQ(result.config, config);
  EXPECT_EQ(result.world_ranks, (std::vector<int>{1, 4, 6}));
  EXPECT_EQ(result.timeout_s, 12.5);
  EXPECT_EQ(result.input.ds_config, "{\"a\": 1}");
  EXPECT_EQ(result.input.arguments, (std::vector<std::string>{"--length", "8"}));
  EXPECT_TRUE(result.is_risky);
  EXPECT_EQ(result.drain_timeout_s, 7.5);
}

TEST(ProtocolTest, IncumbentKeepsItsFourNumbers) {
  const auto result = round_trip(message::Incumbent{4, {0.5, 0.01, 0.02, 7.5}});

  EXPECT_EQ(result.attempt, 4U);
  EXPECT_EQ(result.incumbent.step_s, 0.5);
  EXPECT_EQ(result.incumbent.standard_error, 0.01);
  EXPECT_EQ(result.incumbent.spread, 0.02);
  EXPECT_EQ(result.incumbent.degrees_of_freedom, 7.5);
}

TEST(ProtocolTest, OutcomeKeepsTheMeasurement) {
  Measurement measurement;
  measurement.status = Status::ok;
  measurement.step_times_s = {0.5, 0.25, 1.0 / 3};
  measurement.warmup_steps = 1;
  measurement.losses = {5.5, 5.25};
  measurement.world_ranks = {0, 1};
  measurement.hosts = {"a", "a"};
  measurement.overhead_s = {{"build", 0.125}};

  const auto result = round_trip(message::Outcome{3, measurement}).measurement;

  EXPECT_EQ(result.status, Status::ok);
  EXPECT_EQ(result.step_times_s, measurement.step_times_s);
  EXPECT_EQ(result.warmup_steps, 1);
  EXPECT_EQ(result.losses, measurement.losses);
  EXPECT_EQ(result.overhead_s, measurement.overhead_s);
}

TEST(ProtocolTest, ProfilingKeepsTaskAndProfile) {
  ProfilingTask task;
  task.shape = {2, 3};
  task.budget_s = 0.75;
  task.disk.use.folder = "/local";
  task.disk.use.block_bytes = 4096;
  task.disk.use.queue_depth = 2;
  task.disk.use.threads = 3;
  task.disk.bytes = {1, 2};
  TrainingConfig config;
  config.micro_batch = 6;
  task.runs.push_back({5, config, 1.5});
  Work work{.kind = WorkKind::all_gather, .type = DType::bf16, .out_type = DType::bf16};
  work.size = 123456;
  work.set(WorkFlag::bias);
  task.collectives.push_back(work);
  const auto order = round_trip(message::Profile{8, task, {1, 2}, 60});
  EXPECT_EQ(order.attempt, 8U);
  EXPECT_EQ(order.task.shape, task.shape);
  ASSERT_EQ(order.task.runs.size(), 1U);
  EXPECT_EQ(order.task.runs[0].num_layers, 5);
  EXPECT_EQ(order.task.runs[0].config, config);
  EXPECT_EQ(order.task.runs[0].cost, 1.5);
  EXPECT_EQ(order.task.collectives, task.collectives);
  EXPECT_EQ(order.task.disk, task.disk);
  EXPECT_EQ(order.task.budget_s, 0.75);
  EXPECT_EQ(order.world_ranks, (std::vector<int>{1, 2}));
  EXPECT_EQ(order.timeout_s, 60);

  DeviceProfile profile;
  work.size = 0;
  profile.groups = {{{2, 3}, 1.25, {{work, {{100, 0.5}}}}}};
  const message::Profiled calibrated = round_trip(message::Profiled{8, profile, 1 << 20, 3 << 20});
  EXPECT_EQ(calibrated.profile, profile);
  EXPECT_EQ(calibrated.non_arena_bytes, 1 << 20);
  EXPECT_EQ(calibrated.gpu_non_arena_bytes, 3 << 20);
}

TEST(JobInputTest, KeepsThePlugin) {
  JobInput input;
  input.run = true;
  input.model = preset("gpt2");
  input.instruments.resize(1);
  input.instruments[0].kind = WorkloadKind::plugin;
  input.instruments[0].library_path = "/there/libmine.so";
  input.instruments[0].library_hash = "0123";
  input.instruments[0].options = {{"type", "plugin"}, {"layers", {1, 2.5}}, {"note", nullptr}};

  const WorkloadSpec workload = decode_job_input(encode(input)).instruments.at(0);

  EXPECT_EQ(workload.kind, WorkloadKind::plugin);
  EXPECT_EQ(workload.library_path, "/there/libmine.so");
  EXPECT_EQ(workload.library_hash, "0123");
  EXPECT_EQ(workload.options, input.instruments[0].options);
}

TEST(ProtocolTest, GoneAndQuitKeepTheirWords) {
  const auto gone =
      round_trip(message::Gone{4, Status::timed_out, "why", true, message::Loss::python});
  EXPECT_EQ(gone.status, Status::timed_out);
  EXPECT_EQ(gone.reason, "why");
  EXPECT_TRUE(gone.is_cause);
  EXPECT_EQ(gone.loss, message::Loss::python);

  const auto quit = round_trip(message::Quit{75, false});
  EXPECT_EQ(quit.exit_code, 75);
  EXPECT_FALSE(quit.finalize);
}

TEST(ProtocolTest, RefusesWhatIsNoMessage) {
  EXPECT_THROW(decode({}), InputError);
  EXPECT_THROW(decode({std::byte{0xff}, std::byte{0x00}}), InputError);
  Bytes cut = encode(Message(message::Go{1}));
  cut.pop_back();
  EXPECT_THROW(decode(cut), InputError);
}

TEST(InjectionTest, FindsTheFaultOfARankAndExperiment) {
  const auto find = [](int rank, const char* name) { return find_injection(rank, name); };
  setenv("DSTUNE_INJECT", "oom@1:z0_gas1_tmbspg1,die.timing@2:z1_gas1_tmbspg1,lose_device@3:*", 1);

  EXPECT_EQ(find(1, "z0_gas1_tmbspg1").fault, Fault::oom);
  EXPECT_EQ(find(1, "z0_gas1_tmbspg1").moment, FaultMoment::ready);
  EXPECT_EQ(find(2, "z1_gas1_tmbspg1").fault, Fault::die);
  EXPECT_EQ(find(2, "z1_gas1_tmbspg1").moment, FaultMoment::timing);
  EXPECT_EQ(find(2, "z0_gas1_tmbspg1").fault, Fault::none);
  EXPECT_EQ(find(1, "z0_gas1_tmbspg16").fault, Fault::none);
  EXPECT_EQ(find(3, "z0_gas1_tmbspg16").fault, Fault::loses_device);
  EXPECT_EQ(find(3, "z0_gas1_tmbspg16").moment, FaultMoment::warm_up);

  for (const char* const malformed : {"die", "dye@1:a", "die.late@1:a"}) {
    setenv("DSTUNE_INJECT", malformed, 1);
    EXPECT_THROW(find(1, "a"), Error) << malformed;
  }
  unsetenv("DSTUNE_INJECT");
  EXPECT_EQ(find(1, "z0_gas1_tmbspg1").fault, Fault::none);
}

}  // namespace
}  // namespace dstune
