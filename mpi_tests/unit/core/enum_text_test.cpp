#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {
namespace {

TEST(StatusTest, IsReadAsWritten) {
  for (Status status :
       {Status::ok, Status::raced_out, Status::out_of_memory, Status::timed_out, Status::failed})
    EXPECT_EQ(from_text<Status>(to_text(status)), status);
  EXPECT_EQ(to_text(Status::out_of_memory), "out_of_memory");
  EXPECT_EQ(from_text<Status>("OK"), std::nullopt);
}

TEST(MetricTest, IsReadAsWritten) {
  for (Metric metric :
       {Metric::throughput, Metric::throughput_per_gpu, Metric::latency, Metric::flops}) {
    EXPECT_EQ(from_text<Metric>(to_text(metric)), metric);
    EXPECT_EQ(is_minimised(metric), metric == Metric::latency);
  }
  EXPECT_EQ(to_text(Metric::throughput_per_gpu), "throughput_per_gpu");
  EXPECT_EQ(from_text<Metric>(""), std::nullopt);
}

TEST(EnumTextTest, NamesAreThoseOfTheFiles) {
  EXPECT_EQ(to_text(PlanStatus::planned), "planned");
  EXPECT_EQ(to_text(PlanStatus::infeasible), "infeasible");
  EXPECT_EQ(to_text(PlanStatus::pruned), "pruned");
  EXPECT_EQ(to_text(Recompute::none), "none");
  EXPECT_EQ(to_text(Recompute::selective), "selective");
  EXPECT_EQ(to_text(Recompute::block), "block");
  EXPECT_EQ(to_text(Precision::fp32), "fp32");
  EXPECT_EQ(to_text(Precision::bf16), "bf16");
  EXPECT_EQ(to_text(Precision::fp16), "fp16");
}

TEST(EnumTextTest, AnEnumeratorWithoutANameIsABrokenInvariant) {
  EXPECT_THROW((void)to_text(static_cast<Status>(99)), LogicError);
}

}  // namespace
}  // namespace dstune
