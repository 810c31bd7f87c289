#include "dstune/base/checked.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

std::string message_of(const auto& compute) {
  try {
    static_cast<void>(compute());
  } catch (const OverflowError& error) {
    return error.what();
  }
  return "";
}

TEST(CheckedTest, ProductsAndSumsAreExactUpToTheLast) {
  static_assert(checked_product("it", 3, 5, 7) == 105);
  static_assert(checked_sum("it", 3, 5, 7) == 15);
  EXPECT_EQ(checked_product("it", most / 7, 7), most / 7 * 7);
  EXPECT_EQ(checked_sum("it", most - 1, 1), most);
  EXPECT_EQ(checked_product("it", -1, most), -most);
}

TEST(CheckedTest, WhatOverflowsIsNamed) {
  EXPECT_THAT(message_of([] { return checked_product("rows of it", 1LL << 40, 1LL << 40); }),
              testing::HasSubstr("rows of it"));
  EXPECT_THAT(message_of([] { return checked_sum("sum of it", most, 1); }),
              testing::HasSubstr("sum of it"));
  EXPECT_THAT(message_of([] { return checked_share("share of it", most, 3, 2); }),
              testing::HasSubstr("share of it"));
}

TEST(CheckedTest, AShareHasRoomForItsProduct) {
  EXPECT_EQ(checked_share("it", 2'000'000'000, 8'000'000'000, 8'000'000'000), 2'000'000'000);
  EXPECT_EQ(checked_share("it", most, most - 1, most), most - 1);
  EXPECT_EQ(checked_share("it", 7, 1, 2), 3);
}

}  // namespace
}  // namespace dstune
