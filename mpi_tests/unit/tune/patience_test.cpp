#include <gtest/gtest.h>

#include "dstune/model/model_spec.hpp"
#include "profile/prediction.hpp"

namespace dstune {
namespace {

TEST(PatienceTest, HasTimeForStepsAndForPinningWhatIsOffloaded) {
  JobSpec job;
  job.model = preset("gpt2");
  PlannedExperiment planned;
  const double without_s = patience_s(job, std::nullopt, planned, 2.0);
  EXPECT_GT(without_s, 2.0 * 20);
  planned.predicted.host_memory_bytes = std::int64_t{100} << 30;
  // A second for half a gigabyte.
  EXPECT_GT(patience_s(job, std::nullopt, planned, 2.0), without_s + 200);
  EXPECT_GT(patience_s(job, std::nullopt, planned, std::nullopt),
            patience_s(job, std::nullopt, PlannedExperiment{}, std::nullopt) + 200);
}

// Members have to answer before they count as lost themselves.
TEST(PatienceTest, AGpuComesToRestAfterAStepAtMost) {
  EXPECT_GT(rest_s(30.0), 2 * 30.0);
  EXPECT_EQ(rest_s(0.0), least_rest_s);
  EXPECT_GT(rest_s(std::nullopt), least_rest_s);
}

}  // namespace
}  // namespace dstune
