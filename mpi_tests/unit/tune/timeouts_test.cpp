#include <gtest/gtest.h>

#include "dstune/model/model_spec.hpp"
#include "profile/prediction.hpp"

namespace dstune {
namespace {

TEST(TimeoutsTest, HasTimeForStepsAndForPinningWhatIsOffloaded) {
  JobSpec job;
  job.model = preset("gpt2");
  PlannedExperiment planned;
  const double without_s = inactivity_timeout_s(job, std::nullopt, planned, 2.0);
  EXPECT_GT(without_s, 2.0 * 20);
  planned.predicted.host_memory_bytes = std::int64_t{100} << 30;
  // A second for half a gigabyte.
  EXPECT_GT(inactivity_timeout_s(job, std::nullopt, planned, 2.0), without_s + 200);
  EXPECT_GT(inactivity_timeout_s(job, std::nullopt, planned, std::nullopt),
            inactivity_timeout_s(job, std::nullopt, PlannedExperiment{}, std::nullopt) + 200);
}

// Members have to answer before they count as lost themselves.
TEST(TimeoutsTest, AGpuComesToRestAfterAStepAtMost) {
  EXPECT_GT(drain_timeout_s(30.0), 2 * 30.0);
  EXPECT_EQ(drain_timeout_s(0.0), min_drain_timeout_s);
  EXPECT_GT(drain_timeout_s(std::nullopt), min_drain_timeout_s);
}

}  // namespace
}  // namespace dstune
