#include "dstune/base/wait.hpp"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "thrown.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;

double seconds_since(Waiter::Clock::time_point begin) {
  return std::chrono::duration<double>(Waiter::Clock::now() - begin).count();
}

class WaiterTest : public testing::TestWithParam<bool> {};

TEST_P(WaiterTest, EndsOnCompletion) {
  int rounds = 0;
  const Waiter waiter(
      Waiter::Clock::time_point::max(), [] { return false; }, GetParam());
  waiter.until([&] { return ++rounds == 300; }, "counting");
  EXPECT_EQ(rounds, 300);
}

TEST_P(WaiterTest, EndsAtTheDeadline) {
  const auto begin = Waiter::Clock::now();
  const Waiter waiter(begin + 60ms, nullptr, GetParam());
  try {
    waiter.until([] { return false; }, "waiting for a dead peer");
    FAIL();
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.why(), CollectiveError::Cause::deadline);
    EXPECT_THAT(error.what(), testing::HasSubstr("a dead peer"));
  }
  EXPECT_GE(seconds_since(begin), 0.06);
  EXPECT_LT(seconds_since(begin), 2.0);
}

TEST_P(WaiterTest, AsksAboutOnceAMillisecondWhetherItIsAborted) {
  int asked = 0;
  const auto begin = Waiter::Clock::now();
  const Waiter waiter(
      begin + 30s, [&] { return ++asked == 20; }, GetParam());
  EXPECT_EQ(test::why_ended([&] { waiter.until([] { return false; }, "waiting"); }),
            CollectiveError::Cause::aborted);
  EXPECT_GE(seconds_since(begin), 0.020);
  EXPECT_LT(seconds_since(begin), 5.0);
}

INSTANTIATE_TEST_SUITE_P(OwnAndSharedCore, WaiterTest, testing::Bool());

}  // namespace
}  // namespace dstune
