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

TEST(TextTest, ShowsNoControlCharacters) {
  EXPECT_EQ(printable("plain µ ± ✓ {}%"), "plain µ ± ✓ {}%");
  EXPECT_EQ(printable("\x1b[2J\x07\x7f"), "\\x1B[2J\\x07\\x7F");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\x09c\\x0Dd");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m\xc2\xa0"),
            "\\x9B31m\xc2\xa0")
      << "a C1 control sequence introducer; a space that does not break is text";
  EXPECT_EQ(printable("\x9b"
                      "31m \xff \xe2\x82"),
            "\\x9B31m \\xFF \\xE2\\x82")
      << "bytes that are no UTF-8";
  EXPECT_EQ(printable("\xc0\x80"), "\\xC0\\x80") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xED\\xA0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable_lines("a\n\x1b\r\n"), "a\n\\x1B\\x0D\n");
}

}  // namespace
}  // namespace dstune
