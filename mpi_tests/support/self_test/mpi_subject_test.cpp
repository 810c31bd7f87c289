// Tests that fail, hang or skip on purpose. CTest runs each alone and looks at how the program
// ends.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <mpi.h>

namespace {

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(PassTest, Passes) {
  EXPECT_GE(world_rank(), 0);
}

TEST(FailTest, OnRankOne) {
  EXPECT_NE(world_rank(), 1) << "planted";
}

TEST(FailTest, AfterwardsPasses) {
  EXPECT_GE(world_rank(), 0);
}

TEST(HangTest, OnRankOne) {
  if (world_rank() == 1) hang();
}

TEST(HangTest, InCollective) {
  if (world_rank() != 1) MPI_Barrier(MPI_COMM_WORLD);
}

// Rank 0 leaves the test by a failed assertion while the others are in a collective with it.
TEST(OutOfStepTest, RankZeroLeaves) {
  ASSERT_NE(world_rank(), 0) << "planted";
  MPI_Barrier(MPI_COMM_WORLD);
}

class SetUpFailsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { EXPECT_NE(world_rank(), 2) << "planted"; }
};

TEST_F(SetUpFailsTest, OnRankTwo) {
  EXPECT_GE(world_rank(), 0);
}

TEST(SkipTest, Everywhere) {
  GTEST_SKIP();
}

TEST(SkipTest, OnRankZeroOnly) {
  if (world_rank() == 0) GTEST_SKIP();
}

}  // namespace
