#include "control/show_times.hpp"

#include <gtest/gtest.h>

namespace dstune {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SteadyClock::time_point began{std::chrono::hours(1)};

TEST(ShowTimesTest, TheStateIsDueEveryTwoSecondsAndInANewPhase) {
  ShowTimes times(began);
  EXPECT_TRUE(times.is_state_due(TuningPhase::search, began));
  EXPECT_FALSE(times.is_state_due(TuningPhase::search, began + milliseconds(1999)));
  EXPECT_TRUE(times.is_state_due(TuningPhase::search, began + seconds(2)));
  EXPECT_FALSE(times.is_state_due(TuningPhase::search, began + seconds(3)));
  EXPECT_TRUE(times.is_state_due(TuningPhase::finals, began + seconds(3)));
  EXPECT_FALSE(times.is_state_due(TuningPhase::finals, began + seconds(4)));
}

TEST(ShowTimesTest, APageComesTenSecondsAfterTheLastOne) {
  ShowTimes times(began);
  EXPECT_FALSE(times.is_page_due(began + milliseconds(9999)));
  EXPECT_TRUE(times.is_page_due(began + seconds(10)));
  times.note_page(began + seconds(12), milliseconds(5));
  EXPECT_FALSE(times.is_page_due(began + milliseconds(21'999)));
  EXPECT_TRUE(times.is_page_due(began + seconds(22)));
}

TEST(ShowTimesTest, ALargePageTakesLessThanAHundredthOfTheTime) {
  ShowTimes times(began);
  constexpr milliseconds cost(700);
  times.note_page(began, cost);
  EXPECT_FALSE(times.is_page_due(began + 100 * cost));
  EXPECT_TRUE(times.is_page_due(began + 111 * cost));
}

}  // namespace
}  // namespace dstune
