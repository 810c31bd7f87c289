// Finals that are asked for round by round, as where finalists take turns.
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/ranking/run_again.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double no_limit_s = 1e6;

std::vector<std::size_t> members_of(const std::vector<RunAgain>& round) {
  std::vector<std::size_t> members;
  for (const RunAgain& run : round) members.push_back(run.member);
  return members;
}

/// Rounds end one after the other, of a second each; all runs of one go on at the same time.
class FinalRoundsTest : public testing::Test {
 protected:
  static Repeat repeat_at(const RunAgain& run, int second, double step_s) {
    Repeat repeat = test::repeat_of(*run.kind, run.round, step_s);
    repeat.started_at = *parse_time("2026-01-02T04:00:00.000000Z") + std::chrono::seconds(second);
    repeat.finished_at = repeat.started_at + std::chrono::seconds(1);
    return repeat;
  }
  void end(Scoreboard& scoreboard, const std::vector<RunAgain>& round, double step_s = 1) {
    for (const RunAgain& run : round)
      scoreboard.repeat(run.member, repeat_at(run, seconds_, step_s));
    ++seconds_;
  }

  int seconds_ = 0;
};

TEST_F(FinalRoundsTest, GoBackAndForthThroughAllFinalists) {
  Scoreboard scoreboard = test::draft_of({1, 1.001, 1.002, 3}).scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  const auto first = policy.next_round(no_limit_s);
  EXPECT_THAT(members_of(first), ElementsAre(0, 1, 2));
  for (const RunAgain& run : first) {
    EXPECT_EQ(run.kind, RepeatKind::final_round);
    EXPECT_EQ(run.round, 1);
    EXPECT_EQ(run.slice_share, default_policy().repeating.slice_of_turns);
  }
  EXPECT_THAT(policy.under_way(), ElementsAre(0, 1, 2));
  // Each is slower than before by another share, so nothing is settled.
  for (const RunAgain& run : first)
    scoreboard.repeat(run.member, repeat_at(run, 0, 1 + 0.1 * static_cast<double>(run.member)));
  EXPECT_THAT(policy.under_way(), IsEmpty());
  const auto second = policy.next_round(no_limit_s);
  ASSERT_GE(second.size(), 2U);
  EXPECT_EQ(second.front().round, 2);
  EXPECT_GT(second.front().member, second.back().member);
}

TEST_F(FinalRoundsTest, EndOnceTheAnswerIsClear) {
  Scoreboard scoreboard = test::draft_of({1, 1.3, 1.5}).scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  const auto round = policy.next_round(no_limit_s);
  EXPECT_THAT(members_of(round), ElementsAre(0, 1));
  EXPECT_FALSE(scoreboard.finals().is_done);
  scoreboard.repeat(0, repeat_at(round[0], 0, 1));
  scoreboard.repeat(1, repeat_at(round[1], 0, 1.3));
  EXPECT_THAT(policy.next_round(no_limit_s), IsEmpty());
  EXPECT_TRUE(scoreboard.finals().is_done);
}

TEST_F(FinalRoundsTest, ARoundIsBegunAheadOnlyWhereItWillHardlyBeSpared) {
  Scoreboard clear = test::draft_of({1, 1.3, 1.5}).scoreboard();
  RunAgainPolicy sure(clear, {.races = true});
  const auto round = sure.next_round(no_limit_s);
  EXPECT_THAT(round, SizeIs(2));
  EXPECT_THAT(sure.next_round(no_limit_s), IsEmpty());
  EXPECT_FALSE(clear.finals().is_done) << "the first round goes on";

  // Runs of one member differ by 15 %.
  Scoreboard open = test::draft_of({1, 1, 1, 1, 1, 1}).scoreboard();
  for (std::size_t member = 0; member < 6; ++member)
    for (int again = 1; again <= 2; ++again)
      open.repeat(member, test::repeat_of(RepeatKind::spread, again, again == 1 ? 0.93 : 1.07));
  RunAgainPolicy unsure(open, {.races = true});
  const auto first = unsure.next_round(no_limit_s);
  const auto ahead = unsure.next_round(no_limit_s);
  ASSERT_GE(first.size(), 2U);
  ASSERT_GE(ahead.size(), 2U);
  EXPECT_EQ(first.front().round, 1);
  EXPECT_EQ(ahead.front().round, 2);
  end(open, first);
  EXPECT_THAT(unsure.under_way(), SizeIs(ahead.size()));
  end(open, ahead);
  EXPECT_THAT(unsure.under_way(), IsEmpty());
}

TEST_F(FinalRoundsTest, RoundsThatWillNotComeAreAskedForAgain) {
  Scoreboard scoreboard = test::draft_of({1, 1.001}).scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  ASSERT_THAT(policy.next_round(no_limit_s), SizeIs(2));
  policy.withdraw_rounds();
  EXPECT_THAT(policy.under_way(), IsEmpty());
  const auto again = policy.next_round(no_limit_s);
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_EQ(again.front().round, 1);
}

// A run took 9.3 s by its record.
TEST_F(FinalRoundsTest, TheLikeliestAreComparedWhereTimeIsShort) {
  const auto sizes_at = [](double time_left_s) {
    Scoreboard scoreboard = test::draft_of({1, 1.001, 1.002}).scoreboard();
    RunAgainPolicy policy(scoreboard, {.races = true});
    const std::size_t size = policy.next_round(time_left_s).size();
    EXPECT_EQ(scoreboard.finals().reason.empty(), size > 0);
    return size;
  };
  EXPECT_EQ(sizes_at(100), 3U);
  EXPECT_EQ(sizes_at(20), 2U);
  EXPECT_EQ(sizes_at(10), 1U);
  EXPECT_EQ(sizes_at(5), 0U);
}

// The search took 9.3 s by the records, whose runs all went on at once. Finals may take half of
// that: seven rounds of 0.7 s, and fewer if each of the two runs counted by itself.
TEST_F(FinalRoundsTest, TimeOfTurnsCountsOnce) {
  Scoreboard scoreboard = test::draft_of({1, 1}).scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  const auto begin = *parse_time("2026-01-02T04:00:00.000000Z");
  int rounds = 0;
  for (;;) {
    const auto round = policy.next_round(no_limit_s);
    if (round.empty()) break;
    for (const RunAgain& run : round) {
      // Less than what is taken for a load.
      const auto noise =
          static_cast<double>((3 * run.member + 5 * static_cast<std::size_t>(run.round)) % 7) / 7;
      Repeat repeat = test::repeat_of(*run.kind, run.round, 1 + 0.07 * noise);
      repeat.started_at = begin + rounds * std::chrono::milliseconds(700);
      repeat.finished_at = repeat.started_at + std::chrono::milliseconds(700);
      scoreboard.repeat(run.member, repeat);
    }
    ASSERT_LT(++rounds, 100);
  }
  EXPECT_EQ(rounds, 7);
}

}  // namespace
}  // namespace dstune
