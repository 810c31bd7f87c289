#include "dstune/base/text_pool.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace dstune {
namespace {

TEST(TextPool, KeepsEachText) {
  TextPool pool;
  std::vector<std::pair<TextPool::Place, std::string>> kept;
  for (int number = 0; number < 100'000; ++number) {
    const std::string text = std::string(static_cast<std::size_t>(number % 50), 'a') +
                             (number % 7 == 0 ? "" : std::to_string(number));
    kept.emplace_back(pool.add(text), text);
  }
  const std::string large(std::size_t{3} << 20, 'b');
  kept.emplace_back(pool.add(large), large);
  kept.emplace_back(pool.add("behind it"), "behind it");
  for (const auto& [place, text] : kept) ASSERT_EQ(pool.text(place), text);
}

TEST(TextPool, KeepsATextThatComesAgainOnce) {
  TextPool pool;
  const TextPool::Place first = pool.add("the same");
  for (int time = 0; time < 1000; ++time) EXPECT_EQ(pool.add("the same"), first);
  std::vector<TextPool::Place> places;
  for (int number = 0; number < 100'000; ++number)
    places.push_back(pool.add(std::to_string(number)));
  const std::size_t bytes = pool.bytes();
  for (int number = 0; number < 100'000; ++number)
    ASSERT_EQ(pool.add(std::to_string(number)), places[static_cast<std::size_t>(number)]);
  EXPECT_EQ(pool.bytes(), bytes);
  EXPECT_EQ(pool.add(""), 0U);
  EXPECT_EQ(pool.text(0), "");
}

}  // namespace
}  // namespace dstune
