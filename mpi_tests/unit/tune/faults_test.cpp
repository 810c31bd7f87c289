#include <memory>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "watch/injection.hpp"

namespace dstune {
namespace {

/// Its answers differ from those of most workloads.
class Unusual : public Workload {
 public:
  void build() override { ++built_; }
  void initialize() override { ++built_; }
  StepSample step(std::int64_t step) override { return {.loss = 7.0 + static_cast<double>(step)}; }
  [[nodiscard]] PeakMemory peak_memory() const override {
    PeakMemory peak;
    peak.total_bytes = built_;
    return peak;
  }
  [[nodiscard]] double flops_per_step() const override { return 12; }
  [[nodiscard]] WorkloadTraits traits() const override {
    return {.micro_steps = 5, .has_simulated_times = true};
  }
  [[nodiscard]] WarmupNeed warmup_need() const override { return {.least = warm_after_ + 2}; }
  void note_warm_after(int steps) override { warm_after_ = steps; }

 private:
  std::int64_t built_ = 0;
  int warm_after_ = 0;
};

Injection throwing(FaultMoment moment) {
  return {.fault = Fault::throws, .moment = moment};
}

// A GPU's first steps, in which code is loaded, are never timed: not of an experiment that fails
// either.
TEST(FaultsTest, AWorkloadThatFailsInAStepIsTheOtherInAllElse) {
  const Waiter waiter;
  const auto failing =
      with_fault(std::make_unique<Unusual>(), throwing(FaultMoment::warm_up), waiter);
  failing->build();
  failing->initialize();
  EXPECT_EQ(failing->peak_memory().total_bytes, 2);
  EXPECT_EQ(failing->flops_per_step(), 12);
  EXPECT_EQ(failing->traits().micro_steps, 5);
  EXPECT_EQ(failing->warmup_need().least, 2);
  failing->note_warm_after(3);
  EXPECT_EQ(failing->warmup_need().least, 5);
  EXPECT_TRUE(failing->traits().has_simulated_times);
  EXPECT_FALSE(failing->traits().talks_to_peers);
  EXPECT_EQ(failing->step(1).loss, 8);
  EXPECT_THROW(failing->step(0), Error);
  EXPECT_EQ(failing->step(3).loss, 10);
}

TEST(FaultsTest, HappenAtTheirMoment) {
  const Waiter waiter;
  const auto with = [&](FaultMoment moment) {
    return with_fault(std::make_unique<Unusual>(), throwing(moment), waiter);
  };
  EXPECT_THROW(with(FaultMoment::building)->build(), Error);
  EXPECT_NO_THROW(with(FaultMoment::building)->step(2));
  EXPECT_NO_THROW(with(FaultMoment::timing)->step(2));
  EXPECT_THROW(with(FaultMoment::timing)->step(5), Error);
  EXPECT_THROW((void)with(FaultMoment::reporting)->peak_memory(), Error);
  EXPECT_THROW(throwing(FaultMoment::ready).commit(FaultMoment::ready, waiter), Error);
  EXPECT_NO_THROW(throwing(FaultMoment::ready).commit(FaultMoment::assigned, waiter));
}

TEST(FaultsTest, WithoutAFaultAWorkloadIsItself) {
  auto workload = std::make_unique<Unusual>();
  Workload* const itself = workload.get();
  EXPECT_EQ(with_fault(std::move(workload), {}, Waiter()).get(), itself);
}

}  // namespace
}  // namespace dstune
