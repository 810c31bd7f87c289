// What measured memory says of members that were not run.
#include "measured_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

class MeasuredMemoryTest : public testing::Test {
 protected:
  std::size_t add(std::int64_t micro_batch, int stage = 1, Recompute recompute = Recompute::none) {
    add_member(space_, {.zero_stage = stage, .micro_batch = micro_batch, .recompute = recompute},
               {1, 1});
    return space_.members.size() - 1;
  }
  static Observation took(std::int64_t bytes) { return {Status::ok, MetricValue{1, 1, 1}, bytes}; }

  PlannedSpace space_;
};

TEST_F(MeasuredMemoryTest, ThreeSizesSayWhatTheNextOneTakes) {
  space_.device_memory_bytes = 10'000;
  const std::size_t one = add(1), two = add(2), four = add(4), seven = add(7), eight = add(8),
                    many = add(100);
  MeasuredMemory memory(space_);
  memory.observe(one, took(3'000));
  memory.observe(two, took(4'200));
  EXPECT_EQ(memory.refusal(many), "") << "two sizes say nothing";
  memory.observe(four, took(6'600));
  EXPECT_EQ(memory.refusal(seven), "") << "10,200 may be within what is not exact";
  EXPECT_THAT(
      memory.refusal(eight),
      HasSubstr("needs about 11.1 KiB, but the device has 9.77 KiB (judged by the memory that "
                "member2 and others used)"));
  EXPECT_THAT(memory.refusal(many), HasSubstr("needs about"));
  EXPECT_EQ(memory.refusal(four), "");
}

TEST_F(MeasuredMemoryTest, OneOddFigureIsNotBelieved) {
  space_.device_memory_bytes = 10'000;
  const std::size_t one = add(1), two = add(2), four = add(4), eight = add(8);
  MeasuredMemory memory(space_);
  memory.observe(one, took(5'000));
  memory.observe(two, took(3'000));
  memory.observe(four, took(6'000));
  EXPECT_EQ(memory.refusal(eight), "");
}

TEST_F(MeasuredMemoryTest, WithoutALimitNothingIsSaid) {
  const std::size_t one = add(1), two = add(2), four = add(4), eight = add(8);
  MeasuredMemory memory(space_);
  for (const std::size_t each : {one, two, four}) memory.observe(each, took(1 << 30));
  EXPECT_EQ(memory.refusal(eight), "");
}

TEST_F(MeasuredMemoryTest, WhatSurelyNeedsNoLess) {
  const std::size_t failed = add(4, 1, Recompute::selective);
  const std::size_t larger = add(5, 1, Recompute::selective), smaller = add(3, 1),
                    without_recompute = add(4, 1), other_stage = add(8, 0),
                    with_more = add(8, 1, Recompute::block);
  const std::size_t more_steps = add(4, 1), bucket = add(4, 1), other_group = add(8, 1),
                    unknown_key = add(8, 1);
  space_.members[more_steps].planned.experiment.config.accumulation_steps = 4;
  space_.members[bucket].planned.experiment.config.reduce_bucket_size = 1;
  space_.members[other_group].planned.experiment.shape = {2, 1};
  space_.members[unknown_key].planned.experiment.ds_config = {{"some_key", 1}};
  MeasuredMemory memory(space_);
  memory.observe(failed, ended(Status::out_of_memory));
  for (const std::size_t each : {larger, without_recompute, more_steps})
    EXPECT_EQ(memory.refusal(each), "needs no less memory than member0, which ran out of memory");
  for (const std::size_t each :
       {failed, smaller, other_stage, with_more, bucket, other_group, unknown_key})
    EXPECT_EQ(memory.refusal(each), "") << each;
}

}  // namespace
}  // namespace dstune
