#include "dstune/base/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TextTest, IsTrimmedAtBothEnds) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed("  "), "");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(",a,", ","), "a");
}

TEST(TextTest, HasSmallLetters) {
  EXPECT_EQ(lower_case("AdamW 8Ä"), "adamw 8Ä");
}

TEST(TextTest, IsSplitAtEachSeparator) {
  EXPECT_THAT(split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(split("a,", ','), ElementsAre("a", ""));
  EXPECT_THAT(split("", ','), ElementsAre(""));
}

TEST(TextTest, HasLines) {
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("a\n\nb\n"), ElementsAre("a", "", "b"));
  EXPECT_THAT(lines_of("\n"), ElementsAre(""));
  EXPECT_THAT(lines_of("a"), ElementsAre("a"));
}

}  // namespace
}  // namespace dstune
