#include "profile/interpreter_work.hpp"

#include <gtest/gtest.h>

namespace dstune {
namespace {

TEST(InterpreterWorkTest, DoesTheSameOnEveryMachine) {
  InterpreterWork one, other;
  one.pass();
  const std::uint64_t first = one.result();
  // Other addresses change nothing.
  const InterpreterWork between;
  other.pass();
  EXPECT_EQ(other.result(), first);
  one.pass();
  EXPECT_NE(one.result(), first) << "a pass goes on where the last one ended";
  EXPECT_EQ(first, 8647568577960284537U);
}

TEST(InterpreterTimeTest, TheLeastPassCountsAndTheFirstDoesNot) {
  InterpreterTime time;
  time.pass();
  EXPECT_EQ(time.least_s(), 0) << "it filled the caches";
  time.complete(2);
  const double least_s = time.least_s();
  EXPECT_GT(least_s, 0);
  time.complete(2);
  EXPECT_EQ(time.least_s(), least_s) << "so many were made";
  time.complete(4);
  EXPECT_LE(time.least_s(), least_s);
}

}  // namespace
}  // namespace dstune
