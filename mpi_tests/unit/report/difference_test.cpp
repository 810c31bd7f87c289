#include "journal/difference.hpp"

#include <random>

#include <gtest/gtest.h>

namespace dstune {
namespace {

json::Value parsed(const char* text) {
  return json::Value::parse(text);
}

TEST(DifferenceTest, LeadsBackToTheVeryText) {
  const char* texts[] = {R"({})",
                         R"({"a":1,"b":{"c":2,"d":null},"e":[1,2]})",
                         R"({"a":1,"b":{"d":null,"c":2},"e":[1,2]})",
                         R"({"b":{"c":2,"d":null},"a":1})",
                         R"({"a":1.0,"b":{"c":2},"e":[1,2.0]})",
                         R"({"a":-0.0,"b":{},"e":[]})",
                         R"({"a":0.0,"b":null,"e":{}})",
                         R"({"a":500000000,"x/y":{"~":1},"":2})",
                         R"({"a":5e8,"x/y":{"~":2,"~1":3},"":{"":4}})",
                         R"([1,2])",
                         R"("text")",
                         R"(null)",
                         R"({"n":1,"a":1,"b":{"c":2,"d":null}})",
                         R"({"a":1,"b":{"c":2,"d":null,"n":{"m":[{"k":1}]}},"e":[1,2],"z":true})"};
  for (const char* one : texts)
    for (const char* other : texts) {
      const Difference difference = difference_of(parsed(one), parsed(other));
      const auto restored = restored_from(parsed(one), difference);
      ASSERT_TRUE(restored) << one << " -> " << other;
      EXPECT_EQ(restored->dump(), parsed(other).dump()) << one << " -> " << other;
      const bool is_empty = difference.changes.empty() && difference.without.empty();
      EXPECT_EQ(is_empty, parsed(one).dump() == parsed(other).dump()) << one << " -> " << other;
    }
}

TEST(DifferenceTest, HoldsNothingElse) {
  const Difference difference = difference_of(parsed(R"({"a":{"b":1,"c":2},"d":3,"e":4})"),
                                              parsed(R"({"a":{"b":1,"c":7},"e":4,"f":{"g":5}})"));
  EXPECT_EQ(difference.changes.dump(), R"({"/a/c":7,"/f":{"g":5}})");
  EXPECT_EQ(difference.without, std::vector<std::string>{"/d"});
}

/// An object whose keys and values are drawn from few, so that two of them have much alike.
json::Value drawn(std::mt19937& random, int depth) {
  json::Value value = json::Value::object();
  std::uniform_int_distribution<int> die(0, 5);
  for (int i = 0; i < 4; ++i) {
    const std::string key(1, static_cast<char>('a' + die(random)));
    const int kind = die(random);
    if (kind == 0 && depth > 0)
      value[key] = drawn(random, depth - 1);
    else if (kind == 1)
      value[key] = 0.5 * die(random);
    else if (kind == 2)
      value[key] = {die(random), nullptr};
    else
      value[key] = die(random) % 2;
  }
  return value;
}

TEST(DifferenceTest, LeadsBackFromWhatIsDrawn) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const json::Value one = drawn(random, 3), other = drawn(random, 3);
    const auto restored = restored_from(one, difference_of(one, other));
    ASSERT_TRUE(restored);
    ASSERT_EQ(restored->dump(), other.dump()) << one;
  }
}

TEST(DifferenceTest, WhatLeadsNowhereIsRefused) {
  const json::Value base = parsed(R"({"a":{"b":1},"l":[1]})");
  for (const char* pointer : {"a", "/a/b/c", "/x/y", "/l/0", "/l/99999999999"}) {
    Difference difference;
    difference.changes[pointer] = 1;
    EXPECT_FALSE(restored_from(base, difference)) << pointer;
    difference = {};
    difference.without = {pointer};
    EXPECT_FALSE(restored_from(base, difference)) << pointer;
  }
  Difference absent;
  absent.without = {"/b"};
  EXPECT_FALSE(restored_from(base, absent));
}

}  // namespace
}  // namespace dstune
