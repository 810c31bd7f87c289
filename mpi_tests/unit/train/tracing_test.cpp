#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/train/executor.hpp"
#include "executor/dispatch.hpp"
#include "thread_group.hpp"

namespace dstune {
namespace {

StepPlan small_plan(const Device& device, std::int64_t accumulation, int group_size = 1,
                    int group_rank = 0) {
  ModelSpec model{.name = "tiny",
                  .family = ModelFamily::gpt2,
                  .hidden_size = 8,
                  .num_layers = 2,
                  .num_heads = 2,
                  .num_kv_heads = 2,
                  .head_size = 4,
                  .intermediate_size = 16,
                  .vocab_size = 31,
                  .max_positions = 16};
  TrainingConfig config;
  config.zero_stage = 0;
  config.micro_batch = 2;
  config.accumulation_steps = accumulation;
  config.sequence_length = 8;
  return build_step_plan(model, config, group_size, group_rank, CpuWorkspaces(device.kernels()));
}

TEST(TracingTest, HasEveryOperationOfTheCycleInItsOrder) {
  CpuDevice device(1 << 24, 1);
  test::Rendezvous rendezvous(1);
  test::ThreadGroup group(rendezvous, 0, 1);
  const StepPlan plan = small_plan(device, 4);
  const auto traced = trace_steps(plan, device, group, 0, 60, Waiter());
  ASSERT_TRUE(traced);
  ASSERT_GE(traced->traces.size(), 2U);
  EXPECT_EQ(traced->steps_s.size(), traced->traces.size());
  std::vector<const Operation*> expected;
  for (const Segment& segment : plan.cycle) {
    for (std::int64_t i = 0; i < segment.repeat; ++i) {
      if (segment.kind != Segment::Kind::update) expected.push_back(nullptr);
      for (const Step& step : segment.steps) expected.push_back(&step.operation);
    }
  }
  for (const StepTrace& trace : traced->traces) {
    ASSERT_EQ(trace.size(), expected.size());
    for (std::size_t i = 0; i < trace.size(); ++i) {
      EXPECT_EQ(trace[i].operation, expected[i]);
      EXPECT_GE(trace[i].seconds, 0);
    }
  }
}

TEST(TracingTest, HasNothingOfWhatDoesNotFit) {
  CpuDevice device(1000, 1);
  test::Rendezvous rendezvous(1);
  test::ThreadGroup group(rendezvous, 0, 1);
  EXPECT_FALSE(trace_steps(small_plan(device, 1), device, group, 0, 1, Waiter()));
}

/// A link that takes so long for each all-reduce, in a group whose members have equal data.
class SlowGroup : public ForwardingGroup {
 public:
  explicit SlowGroup(ProcessGroup& group) : ForwardingGroup(group) {}
  void all_reduce(void* /*data*/, std::int64_t /*count*/, DType /*type*/, Reduction /*op*/,
                  const RankRange& /*among*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(260));
  }
};

TEST(TracingTest, LongStepsAreFew) {
  const auto thrown = test::run_ranks(2, [](ProcessGroup& group) {
    CpuDevice device(1 << 24, 1);
    SlowGroup slow(group);
    const StepPlan plan = small_plan(device, 1, 2, group.group_rank());
    const auto traced = trace_steps(plan, device, slow, 0, 0.001, Waiter());
    ASSERT_TRUE(traced);
    EXPECT_EQ(traced->traces.size(), 1U);
    EXPECT_GE(traced->steps_s.front(), 0.25);
  });
  EXPECT_THAT(thrown, testing::Each(std::exception_ptr()));
}

/// Queues of a device that never does what it is asked for.
class HungQueues : public Queues {
 public:
  void prepare(const Numbers&, const Waiter& waiter) override { waiter_ = waiter; }
  void use(int) override {}
  void record(int) override {}
  void wait(int) override {}
  void copy(void*, const void*, std::int64_t) override {}
  void finish(int) override { hang(); }
  void finish_used() override { hang(); }
  void finish_all() override { hang(); }
  void stamp(int) override {}
  double seconds_between(int, int) override { return 0; }
  [[nodiscard]] void* native() const override { return nullptr; }

 private:
  void hang() const {
    waiter_.until([] { return false; }, "a device that hangs");
  }
  Waiter waiter_;
};

class HungDevice : public Device {
 public:
  HungDevice()
      : Device({.kernels = &kernels::cpu_table(),
                .memory = std::make_unique<SystemMemory>(),
                .host_memory = std::make_unique<SystemMemory>(),
                .queues = std::make_unique<HungQueues>(),
                .limit_bytes = 1 << 24,
                .host_limit_bytes = 1 << 24,
                .threads = 1,
                .description = "hung",
                .is_asynchronous = true}) {}
};

TEST(TracingTest, EndsAtTheDeadlineOnADeviceThatHangs) {
  HungDevice device;
  test::Rendezvous rendezvous(1);
  test::ThreadGroup group(rendezvous, 0, 1);
  const Waiter waiter(Waiter::Clock::now() + std::chrono::milliseconds(20), nullptr, true);
  EXPECT_THROW(static_cast<void>(trace_steps(small_plan(device, 1), device, group, 0, 1, waiter)),
               CollectiveError);
}

TEST(TracingTest, TimesWhatAGroupDoesTogether) {
  test::run_ranks(2, [](ProcessGroup& group) {
    int calls = 0;
    EXPECT_GE(time_together(group, 0, [&] { ++calls; }), 0);
    const std::vector<double> all = group.exchange(std::vector{static_cast<double>(calls)});
    EXPECT_EQ(all[0], all[1]);
    EXPECT_GE(calls, 2);
  });
}

TEST(TracingTest, AnOperationIsNotChargedWithWhatRunsInBetween) {
  test::run_ranks(1, [](ProcessGroup& group) {
    const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    EXPECT_GE(time_together(group, 0, sleep, TraceClock::elapsed), 0.02);
    EXPECT_LT(time_together(group, 0, sleep, TraceClock::own), 0.01);
  });
}

TEST(TracingTest, WholeStepsOfARankAloneAreItsOwnTimeToo) {
  EXPECT_EQ(clock_of_steps(TraceClock::elapsed), TraceClock::elapsed);
  EXPECT_EQ(clock_of_steps(TraceClock::own), TraceClock::elapsed);
  const double began_s = seconds_by(clock_of_steps(TraceClock::own_alone));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LT(seconds_by(clock_of_steps(TraceClock::own_alone)) - began_s, 0.01);
}

TEST(BarrierGroupTest, TakesWaitingOutOfTheOperationItWasIn) {
  test::run_ranks(2, [](ProcessGroup& group) {
    train::BarrierGroup rendezvous(group);
    StepTrace trace;
    const auto operation = [&] {
      rendezvous.exchange(std::vector{1.0});
      trace.push_back({nullptr, 10});
    };
    trace.push_back({nullptr, 10});
    rendezvous.begin(trace);
    if (group.group_rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    operation();
    rendezvous.end();
    operation();
    EXPECT_EQ(trace[0].seconds, 10);
    EXPECT_LT(trace[1].seconds, 10);
    EXPECT_EQ(trace[2].seconds, 10) << "it does not meet any more";
  });
}

}  // namespace
}  // namespace dstune
