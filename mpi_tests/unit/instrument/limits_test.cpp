#include <gtest/gtest.h>

#include "dstune/instrument/instrument.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {
namespace {

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() { job_.model = preset("gpt2"); }

  [[nodiscard]] RunLimits limits(std::optional<double> step_s,
                                 WorkloadKind kind = WorkloadKind::transformer) const {
    WorkloadSpec spec;
    spec.kind = kind;
    spec.step_time_s = 100;
    return make_instrument(spec)->limits(
        {.job = job_, .planned = planned_, .step_s = step_s, .is_on_gpus = true});
  }

  JobSpec job_;
  PlannedExperiment planned_;
};

TEST_F(LimitsTest, HasTimeForStepsAndForPinningWhatIsOffloaded) {
  const double without_s = limits(2.0).inactivity_timeout_s;
  const double unknown_s = limits(std::nullopt).inactivity_timeout_s;
  EXPECT_GT(without_s, 2.0 * 20);
  planned_.predicted.host_memory_bytes = std::int64_t{100} << 30;
  // A second for half a gigabyte.
  EXPECT_GT(limits(2.0).inactivity_timeout_s, without_s + 200);
  EXPECT_GT(limits(std::nullopt).inactivity_timeout_s, unknown_s + 200);
}

TEST_F(LimitsTest, AStepThatIsGivenMayTakeAsLongAsItIsSaid) {
  EXPECT_GT(limits(std::nullopt, WorkloadKind::synthetic).inactivity_timeout_s, 1000);
}

TEST_F(LimitsTest, ForeignCodeMayBeSilentForMinutes) {
  for (const WorkloadKind kind : {WorkloadKind::plugin, WorkloadKind::deepspeed})
    EXPECT_EQ(limits(std::nullopt, kind).inactivity_timeout_s, 600);
}

// Members have to answer before they count as lost themselves.
TEST_F(LimitsTest, AGpuComesToRestAfterAStepAtMost) {
  EXPECT_GT(limits(30.0).drain_timeout_s, 2 * 30.0);
  EXPECT_EQ(limits(0.0).drain_timeout_s, min_drain_timeout_s);
  EXPECT_GT(limits(std::nullopt).drain_timeout_s, min_drain_timeout_s);
}

}  // namespace
}  // namespace dstune
