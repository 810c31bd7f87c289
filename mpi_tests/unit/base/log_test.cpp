#include "dstune/base/log.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace dstune {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override { log::set_color(false); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_F(LogTest, WritesShortLinesToStderr) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log::warning("a {brace} and 100 %v");
  log::error("b");
  log::info("c");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "dstune: warning: a {brace} and 100 %v\ndstune: error: b\ndstune: info: c\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST_F(LogTest, LetsNoControlCharacterThrough) {
  testing::internal::CaptureStderr();
  log::error("/key\x1b]0;title\x07\ndstune: forged");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "dstune: error: /key\\x1B]0;title\\x07\\ndstune: forged\n");
}

TEST_F(LogTest, AFrameIsAskedAroundEachMessageThatIsShown) {
  testing::internal::CaptureStderr();
  log::set_frame([](const std::function<void()>& write) {
    std::fputs("[", stderr);
    write();
    std::fputs("]", stderr);
  });
  log::debug("hidden");
  log::info("a");
  log::set_frame({});
  log::info("b");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[dstune: info: a\n]dstune: info: b\n");
}

TEST_F(LogTest, LeavesOutWhatIsBelowTheLevel) {
  testing::internal::CaptureStderr();
  log::set_level(log::Level::error);
  log::info("hidden");
  log::warning("hidden");
  log::error("shown");
  log::set_level(log::Level::off);
  log::error("hidden");
  log::set_level(log::Level::warning);
  log::info("hidden");
  log::warning("shown");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "dstune: error: shown\ndstune: warning: shown\n");
}

TEST_F(LogTest, ShowsWhatExplainsWhereAsked) {
  testing::internal::CaptureStderr();
  log::debug("hidden");
  log::set_level(log::Level::debug);
  log::debug("shown");
  log::info("shown");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "dstune: debug: shown\ndstune: info: shown\n");
}

TEST_F(LogTest, ColorsTheLevelWhenAsked) {
  log::set_color(true);
  testing::internal::CaptureStderr();
  log::warning("w");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("\x1b["), std::string::npos);
}

TEST_F(LogTest, KeepsLinesOfThreadsApart) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log::info(std::string(50, 'x'));
    });
  for (std::thread& thread : threads) thread.join();
  std::istringstream lines(testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    ASSERT_EQ(line, "dstune: info: " + std::string(50, 'x'));
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace dstune
