#include "size_search.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Le;

using Throughput = std::function<std::optional<double>(std::int64_t)>;

/// What ran, in order, `slots` at a time.
std::vector<std::int64_t> run_sizes(SizeSearch& search, const std::vector<std::int64_t>& sizes,
                                    const Throughput& throughput, std::size_t slots = 1) {
  const auto places = run_search(
      search, [&](std::size_t place) { return throughput(sizes[place]); }, slots);
  EXPECT_TRUE(are_distinct(places)) << "no size runs twice";
  std::vector<std::int64_t> ran;
  for (const std::size_t place : places) ran.push_back(sizes[place]);
  return ran;
}

/// Samples a second where a step takes a constant, and each sample some more.
double rising_with_size(std::int64_t size) {
  const auto count = static_cast<double>(size);
  return count / (4 + 0.5 * count);
}

TEST(SizeSearchTest, FindsTheLargestThatRuns) {
  for (const std::size_t slots : {1, 3}) {
    for (const std::int64_t limit : {1, 2, 5, 13, 31, 32}) {
      const auto sizes = sizes_to(32);
      SizeSearch search(sizes, 3, 0);
      const auto ran = run_sizes(
          search, sizes,
          [&](auto size) {
            return size <= limit ? std::optional(static_cast<double>(size)) : std::nullopt;
          },
          slots);
      ASSERT_TRUE(search.best());
      EXPECT_EQ(sizes[*search.best()], limit);
      EXPECT_EQ(sizes[*search.largest()], limit);
      EXPECT_LE(ran.size(), slots == 1 ? 11U : 14U) << "limit " << limit;
    }
  }
}

// DeepSpeed tries sizes that did not run again, and counts them.
TEST(SizeSearchTest, IdleGroupsProbeSeveralSizes) {
  const auto sizes = sizes_to(64);
  SizeSearch search(sizes, 3, 0);
  EXPECT_EQ(search.next(), 0U);
  EXPECT_FALSE(search.next()) << "nothing is known yet";
  search.observe(0, 1.0);
  EXPECT_EQ(search.next(), 3U);
  EXPECT_EQ(search.next(), 15U);
  EXPECT_FALSE(search.next()) << "two steps at once";
  search.observe(3, 2.0);
  EXPECT_EQ(search.next(), 63U);
  search.observe(15, 4.0);
  search.observe(63, std::nullopt);
  EXPECT_EQ(search.next(), 39U);
  EXPECT_THAT(search.next(), testing::AnyOf(27U, 51U));
  EXPECT_THAT(search.next(), testing::AnyOf(27U, 51U));
}

TEST(SizeSearchTest, LargeSizesComeWhereSmallerOnesPay) {
  const auto sizes = sizes_to(1024);
  SizeSearch search(sizes, 3, 0);
  const auto ran = run_sizes(search, sizes, [](std::int64_t size) {
    return std::optional(std::min(30.0, static_cast<double>(size)));
  });
  std::int64_t largest = 1;
  for (const std::int64_t size : ran) {
    EXPECT_LE(size, default_policy().sizes.largest_step_up * largest);
    largest = std::max(largest, size);
  }
  EXPECT_EQ(largest, 256) << "64 is no slower";
  EXPECT_GE(sizes[*search.best()], 30);
}

TEST(SizeSearchTest, AnOptimumInsideIsFoundOnBothSides) {
  for (const std::int64_t optimum : {20, 27, 32, 40}) {
    const auto sizes = sizes_to(40);
    SizeSearch search(sizes, 3, 0);
    const auto throughput = [&](std::int64_t size) {
      const double away = static_cast<double>(size - optimum) / 40;
      return std::optional(10 - 10 * away * away);
    };
    const auto ran = run_sizes(search, sizes, throughput);
    EXPECT_GT(*throughput(sizes[*search.best()]), 9.9) << optimum;
    EXPECT_LE(ran.size(), 10U);
  }
}

TEST(SizeSearchTest, StopsBisectingOnAPlateau) {
  const auto sizes = sizes_to(1000);
  SizeSearch search(sizes, 3, 0);
  const auto ran = run_sizes(search, sizes, [](std::int64_t size) -> std::optional<double> {
    if (size > 900) return std::nullopt;
    return std::min(10.0, 0.1 * static_cast<double>(size));
  });
  EXPECT_LE(ran.size(), 11U) << "from 256 on nothing is gained, so 900 is not looked for";
  EXPECT_EQ(*search.best() + 1, sizes[*search.best()]);
  EXPECT_GE(sizes[*search.best()], 100);
}

TEST(SizeSearchTest, StartsWhereItIsToldAndFallsBack) {
  const auto sizes = sizes_to(16);
  SizeSearch fits(sizes, 3, 7);
  EXPECT_EQ(sizes[*fits.next()], 8);
  // DeepSpeed gives a stage up whose first size does not run.
  SizeSearch does_not(sizes, 3, 7);
  const auto ran = run_sizes(does_not, sizes, [](std::int64_t size) -> std::optional<double> {
    if (size > 3) return std::nullopt;
    return rising_with_size(size);
  });
  EXPECT_THAT(ran, Contains(1));
  EXPECT_EQ(sizes[*does_not.best()], 3);
}

TEST(SizeSearchTest, WhereNothingRunsLittleIsTried) {
  const auto sizes = sizes_to(100);
  SizeSearch search(sizes, 3, 20);
  const auto ran = run_sizes(search, sizes, [](auto) { return std::nullopt; });
  EXPECT_THAT(ran, ElementsAre(21, 1));
  EXPECT_FALSE(search.best());
  EXPECT_EQ(search.smallest_failed(), 0U);
}

TEST(SizeSearchTest, OneSizeIsOneRun) {
  SizeSearch search({5}, 3, 0);
  EXPECT_THAT(run_sizes(search, {5}, rising_with_size), ElementsAre(5));
  EXPECT_THAT(search.sizes_to_try(), ElementsAre(0U));
}

TEST(SizeSearchTest, SizesToTryAreTheBestAndItsRivals) {
  const auto sizes = sizes_to(40);
  SizeSearch search(sizes, 3, 0);
  run_sizes(search, sizes, rising_with_size);
  EXPECT_THAT(search.sizes_to_try(), ElementsAre(19U, 29U, 39U));
  SizeSearch one(sizes, 1, 0);
  run_sizes(one, sizes, rising_with_size);
  EXPECT_THAT(one.sizes_to_try(), ElementsAre(39U));
}

TEST(SizeSearchTest, RevisedScoresDecide) {
  const auto sizes = sizes_to(4);
  SizeSearch search(sizes, 1, 0);
  for (const double score : {1.0, 2.0}) search.observe(*search.next(), score);
  EXPECT_EQ(search.best(), 3U);
  search.revise(0, 7);
  search.revise(3, 3);
  search.revise(1, 100);
  EXPECT_EQ(search.best(), 0U) << "what has not ended has no score";
}

// One figure in ten is wrong by up to 10 %: the answer is not far off, and the search ends.
TEST(SizeSearchTest, NoiseCostsLittle) {
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 50; ++turn) {
    const auto sizes = sizes_to(48);
    SizeSearch search(sizes, 3, 0);
    const auto ran = run_sizes(search, sizes, [&](std::int64_t size) -> std::optional<double> {
      if (size > 37) return std::nullopt;
      return rising_with_size(size) * (1 + 0.1 * (static_cast<double>(random() % 2001) / 1000 - 1));
    });
    EXPECT_GT(rising_with_size(sizes[*search.best()]), 0.8 * rising_with_size(37));
    EXPECT_LE(ran.size(), 16U);
  }
}

TEST(SizeSearchTest, WithoutAPlanSizesDouble) {
  for (const std::int64_t limit : {1, 2, 5, 13, 31, 200, 256}) {
    const auto sizes = sizes_to(256);
    SizeSearch search(sizes, 3, 0, true);
    std::int64_t largest = 0;
    const auto ran = run_sizes(search, sizes, [&](auto size) {
      EXPECT_LE(size, std::max<std::int64_t>(1, 2 * largest));
      if (size > limit) return std::optional<double>();
      largest = std::max(largest, size);
      return std::optional(static_cast<double>(size));
    });
    ASSERT_TRUE(search.best());
    EXPECT_EQ(sizes[*search.largest()], limit);
    EXPECT_LE(ran.size(), 22U) << "limit " << limit;
  }
}

TEST(SizeSearchTest, WithoutAPlanAPlateauEndsIt) {
  const auto sizes = sizes_to(1024);
  SizeSearch search(sizes, 3, 0, true);
  const auto ran =
      run_sizes(search, sizes, [](auto size) { return std::optional(rising_with_size(size)); });
  EXPECT_THAT(ran, Each(Le(256)));
}

TEST(SizeSearchTest, WithoutAPlanASmallestSizeThatFailsIsNotTheEnd) {
  const auto sizes = sizes_to(64);
  SizeSearch search(sizes, 3, 0, true);
  run_sizes(search, sizes, [](auto size) {
    return size < 3 ? std::nullopt : std::optional(static_cast<double>(size));
  });
  EXPECT_EQ(sizes[search.best().value()], 64);
  SizeSearch never(sizes, 3, 0, true);
  EXPECT_THAT(run_sizes(never, sizes, [](auto) { return std::optional<double>(); }),
              ElementsAre(1, 2, 4));
}

TEST(SizeSearchTest, RefusedSizesAreNotTried) {
  const auto sizes = sizes_to(64);
  SizeSearch search(sizes, 3, 0, true);
  std::vector<std::int64_t> ran;
  while (const auto place = search.next()) {
    ran.push_back(sizes[*place]);
    search.observe(*place, static_cast<double>(sizes[*place]));
    // By then it is known that 21 and more do not fit.
    if (sizes[*place] == 8) search.refuse_from(20);
  }
  EXPECT_TRUE(search.is_done());
  EXPECT_THAT(ran, Each(Le(20)));
  EXPECT_EQ(sizes[search.best().value()], 20);
}

}  // namespace
}  // namespace dstune
