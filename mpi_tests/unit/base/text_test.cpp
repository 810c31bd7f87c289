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

TEST(TextTest, WhatIsNoTextBecomesQuestionMarks) {
  EXPECT_EQ(printable("plain Ä € 😀"), "plain Ä € 😀");
  EXPECT_EQ(printable("a\xff\x62\xc3"), "a?b?") << "a byte that is none, and half a letter";
  EXPECT_EQ(printable("\x1b[31m\n\t\x7f"), "?[31m???");
  EXPECT_EQ(printable("\xc0\x80"), "??") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????") << "beyond Unicode";
  EXPECT_EQ(printable(std::string_view("\0x", 2)), "?x");
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
