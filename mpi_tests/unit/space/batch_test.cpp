/// The batch rule, in the words of whoever wrote the sizes.

#include <random>
#include <regex>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/space/config_check.hpp"
#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class BatchTest : public SpaceTest {
 protected:
  /// "/pointer: message" of what a plan and `check` say of these keys on so many ranks; the same.
  std::vector<std::string> said(const std::string& keys, int ranks) {
    default_ranks_ = ranks;
    const std::string text = "{" + keys + R"(, "zero_optimization": {"stage": 1}})";
    std::vector<std::string> found;
    for (const Problem& problem : problems(text))
      found.push_back(problem.pointer + ": " + problem.message);
    EXPECT_EQ(found, checked(text, ranks)) << text;
    return found;
  }
  static std::vector<std::string> checked(const std::string& text, std::optional<int> ranks) {
    const CheckedConfig config =
        check_config(json::Document::parse(text, "ds.json"),
                     {.release = Version{0, 19, 6}, .data_parallel_ranks = ranks});
    std::vector<std::string> found;
    for (const Finding& finding : config.findings.all())
      if (severity_of(finding) == Severity::error)
        found.push_back(finding.problem.pointer + ": " + finding.problem.message);
    return found;
  }
};

TEST_F(BatchTest, NamesWhatIsWrittenAndTheNearestThatDo) {
  const std::string micro = "train_micro_batch_size_per_gpu";
  for (const char* const size : {"2", "[2]"})
    EXPECT_THAT(said(fmt::format(R"("train_batch_size": 256, "{}": {})", micro, size), 7),
                ElementsAre("/train_batch_size: 256 is no multiple of " + micro +
                            " 2 x 7 ranks: write 252 or 266, or train on 8 ranks"));
  for (const char* const rest : {"", R"(, "train_micro_batch_size_per_gpu": "auto")"})
    EXPECT_THAT(said(fmt::format("\"train_batch_size\": 256{}", rest), 7),
                ElementsAre("/train_batch_size: 256 is no multiple of 7 ranks: write 252 or 259, "
                            "or train on 8 ranks"));
  EXPECT_THAT(said(R"("train_batch_size": 4)", 7),
              ElementsAre("/train_batch_size: 4 is no multiple of 7 ranks: write 7, or train on 4 "
                          "ranks"));
  EXPECT_THAT(said(R"("train_batch_size": 100, "gradient_accumulation_steps": 3)", 2),
              ElementsAre("/train_batch_size: 100 is no multiple of gradient_accumulation_steps 3 "
                          "x 2 ranks: write 96 or 102"));
  EXPECT_THAT(said(fmt::format(R"("train_batch_size": 64, "{}": [4],
                                  "gradient_accumulation_steps": 2)",
                               micro),
                   4),
              ElementsAre("/train_batch_size: 64 is not " + micro +
                          " 4 x gradient_accumulation_steps 2 x 4 ranks: write 32, or train on 8 "
                          "ranks"));
  EXPECT_THAT(said(fmt::format("\"train_batch_size\": 25, \"{}\": [2, 3]", micro), 1),
              ElementsAre("/train_batch_size: no combination of the sizes does: 25 is no multiple "
                          "of " +
                          micro + " 2 x 1 rank: write 24 or 26"));
}

// Searched sizes grow by an eighth: 17 is none of them.
TEST_F(BatchTest, AMicroBatchThatFollowsIsSearched) {
  EXPECT_THAT(said(R"("train_batch_size": 34, "gradient_accumulation_steps": 1)", 2),
              testing::IsEmpty());
  std::vector<std::int64_t> live;
  for (const auto& member : members(R"({"train_batch_size": 34, "gradient_accumulation_steps": 1,
                   "zero_optimization": {"stage": 1}})"))
    if (!member.is_pruned)
      live.push_back(member.config.micro_batch);
    else
      EXPECT_EQ(member.prune_kind, PruneKind::batch) << member.reason;
  EXPECT_THAT(live, ElementsAre(17));
}

TEST_F(BatchTest, HasNoRanksWhereNobodySaysThem) {
  EXPECT_THAT(checked(R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 3,
                          "zero_optimization": {"stage": 1}})",
                      std::nullopt),
              ElementsAre("/train_batch_size: 256 is no multiple of "
                          "train_micro_batch_size_per_gpu 3: write 255 or 258"));
}

TEST_F(BatchTest, LimitsAreNamedAtTheirKeys) {
  const std::string sizes = R"(, "train_micro_batch_size_per_gpu": [4])";
  EXPECT_THAT(said(R"("autotuning": {"max_train_batch_size": 3})" + sizes, 2),
              ElementsAre("/autotuning/max_train_batch_size: leaves no member (train_batch_size 8 "
                          "is above max_train_batch_size 3): change one of the two"));
  EXPECT_THAT(said(R"("autotuning": {"min_train_batch_size": 9})" + sizes, 2),
              ElementsAre(HasSubstr("/autotuning/min_train_batch_size: leaves no member")));
  EXPECT_THAT(said(R"("autotuning": {"min_train_micro_batch_size_per_gpu": 5},
                      "train_batch_size": 24)",
                   8),
              ElementsAre(HasSubstr("24 on 8 ranks is no multiple of a micro-batch from 5 to")));
}

/// What is advised goes together, and nothing nearer does.
TEST_F(BatchTest, AdviceHoldsAndIsTheNearest) {
  std::mt19937 random(7);
  const auto draw = [&](int most) {
    return std::uniform_int_distribution<std::int64_t>(1, most)(random);
  };
  const auto numbers = [](const std::string& text, const std::string& pattern) {
    std::vector<std::int64_t> found;
    const std::regex expression(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at)
      found.push_back(std::stoll((*at)[1].str()));
    return found;
  };
  int advised = 0;
  for (int round = 0; round < 2000; ++round) {
    WrittenBatch written{draw(300), std::nullopt, std::nullopt, draw(12)};
    if (draw(3) > 1) written.micro_batch = draw(6);
    if (draw(3) > 1) written.accumulation_steps = draw(6);
    const auto fits = [&](std::int64_t total, std::int64_t ranks) {
      WrittenBatch other = written;
      other.train_batch_size = total;
      other.ranks = ranks;
      return contradiction_of(other).empty();
    };
    const std::int64_t total = *written.train_batch_size;
    const std::int64_t ranks = *written.ranks;
    if (fits(total, ranks)) continue;
    const std::string advice = batch_advice(written);
    const auto totals = numbers(advice.substr(0, advice.find(", or train")), "([0-9]+)");
    ASSERT_FALSE(totals.empty()) << advice;
    for (const std::int64_t other : totals) EXPECT_TRUE(fits(other, ranks)) << advice;
    for (std::int64_t other = totals.front() + 1; other < totals.back(); ++other)
      EXPECT_FALSE(fits(other, ranks)) << advice;
    const auto counts = numbers(advice, "train on ([0-9]+)");
    for (std::int64_t other = 1; other <= 2 * ranks; ++other) {
      const bool is_nearer =
          counts.empty() || std::abs(other - ranks) < std::abs(counts.front() - ranks);
      EXPECT_FALSE(is_nearer && fits(total, other)) << advice << " " << other;
    }
    for (const std::int64_t other : counts) EXPECT_TRUE(fits(total, other)) << advice;
    ++advised;
  }
  EXPECT_GE(advised, 1000);
}

}  // namespace
}  // namespace dstune
