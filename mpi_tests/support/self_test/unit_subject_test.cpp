// Tests that fail, hang or skip on purpose. CTest runs each alone and looks at how the program
// ends.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace {

TEST(PassTest, Passes) {
  SUCCEED();
}

TEST(FailTest, Fails) {
  ADD_FAILURE() << "planted";
}

TEST(HangTest, Hangs) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(SkipTest, IsSkipped) {
  GTEST_SKIP();
}

}  // namespace
