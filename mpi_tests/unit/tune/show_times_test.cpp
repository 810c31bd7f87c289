#include "control/show_times.hpp"

#include <gtest/gtest.h>

namespace dstune {
namespace {

constexpr SteadyClock::time_point began{std::chrono::hours(1)};

TEST(ShowTimesTest, TheStateIsDueEveryTwoSecondsAndInANewPhase) {
  ShowTimes times(began);
  EXPECT_TRUE(times.is_state_due(TuningPhase::search, began));
  EXPECT_FALSE(times.is_state_due(TuningPhase::search, began + std::chrono::milliseconds(1999)));
  EXPECT_TRUE(times.is_state_due(TuningPhase::search, began + std::chrono::seconds(2)));
  EXPECT_FALSE(times.is_state_due(TuningPhase::search, began + std::chrono::seconds(3)));
  EXPECT_TRUE(times.is_state_due(TuningPhase::finals, began + std::chrono::seconds(3)));
  EXPECT_FALSE(times.is_state_due(TuningPhase::finals, began + std::chrono::seconds(4)));
}

TEST(ShowTimesTest, APageComesTenSecondsAfterTheLastOne) {
  ShowTimes times(began);
  EXPECT_FALSE(times.is_page_due(began + std::chrono::milliseconds(9999)));
  EXPECT_TRUE(times.is_page_due(began + std::chrono::seconds(10)));
  times.note_page(began + std::chrono::seconds(12), std::chrono::milliseconds(5));
  EXPECT_FALSE(times.is_page_due(began + std::chrono::milliseconds(21'999)));
  EXPECT_TRUE(times.is_page_due(began + std::chrono::seconds(22)));
}

TEST(ShowTimesTest, ALargePageTakesLessThanAHundredthOfTheTime) {
  ShowTimes times(began);
  constexpr std::chrono::milliseconds cost(700);
  times.note_page(began, cost);
  EXPECT_FALSE(times.is_page_due(began + 100 * cost));
  EXPECT_TRUE(times.is_page_due(began + 111 * cost));
}

}  // namespace
}  // namespace dstune
