#include <memory>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "worker/injection.hpp"

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
    return {.micro_steps = 5, .min_warmup_steps = 3, .has_simulated_times = true};
  }

 private:
  std::int64_t built_ = 0;
};

// A GPU's first steps, in which code is loaded, are never timed: not of an experiment that fails
// in its third step either.
TEST(FaultsTest, AWorkloadThatFailsInAStepIsTheOtherInAllElse) {
  const auto failing = with_fault(std::make_unique<Unusual>(), Fault::throws_in_step);
  failing->build();
  failing->initialize();
  EXPECT_EQ(failing->peak_memory().total_bytes, 2);
  EXPECT_EQ(failing->flops_per_step(), 12);
  EXPECT_EQ(failing->traits().micro_steps, 5);
  EXPECT_EQ(failing->traits().min_warmup_steps, 3);
  EXPECT_TRUE(failing->traits().has_simulated_times);
  EXPECT_FALSE(failing->traits().talks_to_peers);
  EXPECT_EQ(failing->step(1).loss, 8);
  EXPECT_THROW(failing->step(2), Error);
  EXPECT_EQ(failing->step(3).loss, 10);
}

TEST(FaultsTest, WithoutAFaultInAStepAWorkloadIsItself) {
  auto workload = std::make_unique<Unusual>();
  Workload* const itself = workload.get();
  EXPECT_EQ(with_fault(std::move(workload), Fault::oom).get(), itself);
}

}  // namespace
}  // namespace dstune
