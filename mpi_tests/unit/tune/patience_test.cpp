#include "patience.hpp"

#include <gtest/gtest.h>

#include "dstune/model/model_spec.hpp"

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

}  // namespace
}  // namespace dstune
