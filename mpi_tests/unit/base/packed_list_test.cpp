#include "dstune/base/packed_list.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

/// Keeps the lengths of texts that are all of one letter.
class Lengths : public Packing<std::string> {
 public:
  explicit Lengths(std::vector<std::size_t> lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] std::unique_ptr<Packing> copy() const override {
    return std::make_unique<Lengths>(*this);
  }
  [[nodiscard]] std::size_t size() const override { return lengths_.size(); }
  [[nodiscard]] std::string unpack(std::size_t place) const override {
    return std::string(lengths_[place], 'x');
  }
  void pack(std::size_t place, const std::string& text) override { lengths_[place] = text.size(); }

 private:
  std::vector<std::size_t> lengths_;
};

PackedList<std::string> texts_of(std::vector<std::size_t> lengths) {
  return PackedList<std::string>(std::make_unique<Lengths>(std::move(lengths)));
}

std::vector<std::string> all(const PackedList<std::string>& list) {
  std::vector<std::string> values;
  for (const std::string& value : list) values.push_back(value);
  return values;
}

TEST(PackedList, AWalkOpensNothing) {
  const auto list = texts_of({1, 0, 2});
  EXPECT_THAT(all(list), testing::ElementsAre("x", "", "xx"));
  EXPECT_EQ(std::ranges::count_if(list, [](const auto& one) { return one.empty(); }), 1);
  EXPECT_EQ(list.copy_of(2), "xx");
  EXPECT_EQ(list.num_open(), 0U);
}

TEST(PackedList, AWalkPacksWhatItChanged) {
  auto list = texts_of({1, 2, 3});
  for (std::string& value : list) {
    value += "x";
    if (value.size() == 3) break;
  }
  EXPECT_THAT(all(list), testing::ElementsAre("xx", "xxx", "xxx"));
  EXPECT_EQ(list.num_open(), 0U);
}

TEST(PackedList, ALookByPlaceKeepsTheValueOpen) {
  auto list = texts_of({1, 2, 3});
  std::string& second = list[1];
  second = "of two letters";  // as no packing could keep it
  for (std::string& value : list) value += "x";
  EXPECT_THAT(all(list), testing::ElementsAre("xx", "of two lettersx", "xxxx"));
  EXPECT_EQ(&list[1], &second);
  EXPECT_EQ(list.opened(0), nullptr);
  std::vector<std::size_t> places;
  list.visit_open([&](std::size_t place, const std::string&) { places.push_back(place); });
  EXPECT_THAT(places, testing::ElementsAre(1));
}

TEST(PackedList, ACopyIsItsOwn) {
  auto list = texts_of({1, 2});
  list[0] = "first";
  auto copy = list;
  list[0] = "other";
  for (std::string& value : list) value += "x";
  EXPECT_THAT(all(copy), testing::ElementsAre("first", "xx"));
  const auto moved = std::move(copy);
  EXPECT_THAT(all(moved), testing::ElementsAre("first", "xx"));
}

TEST(PackedList, WithoutAPackingItIsAList) {
  PackedList<std::string> list({"a", "b"});
  list.emplace_back("c").push_back('c');
  EXPECT_EQ(list.back(), "cc");
  EXPECT_EQ(list.num_open(), 3U);
  const auto found = std::ranges::find(list, "b");
  EXPECT_EQ(found - list.begin(), 1);
  EXPECT_EQ(*(list.begin() + 2), "cc");
  list.clear();
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace dstune
