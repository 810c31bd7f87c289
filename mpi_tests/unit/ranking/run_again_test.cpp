#include "dstune/ranking/run_again.hpp"

#include <chrono>
#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::IsEmpty;
using testing::Lt;
using testing::SizeIs;
using testing::UnorderedElementsAre;

/// Judged with what was drafted.
Scoreboard judged(const test::Draft& draft) {
  Scoreboard scoreboard = draft.scoreboard();
  scoreboard.judge();
  return scoreboard;
}

TEST(ContendersTest, AreTheLikeliestAndTwoInAnyCase) {
  EXPECT_THAT(contenders(judged({})), IsEmpty());
  EXPECT_THAT(contenders(judged(test::draft_of({1.5, 1, 2, 3}))), ElementsAre(1, 0));
  EXPECT_THAT(contenders(judged(test::draft_of({1.03, 1, 1.01, 3, 1.005}))),
              UnorderedElementsAre(0, 1, 2, 4));
  EXPECT_THAT(contenders(judged(test::draft_of(std::vector<double>(20, 1)))),
              SizeIs(default_policy().repeating.max_finalists));
}

TEST(ContendersTest, AreMoreWhereRunsDifferMore) {
  test::Draft draft = test::draft_of({1, 1.15, 1.16, 1.17});
  EXPECT_THAT(contenders(judged(draft)), SizeIs(2));
  for (const double step_s : {0.9, 1.15, 1.08, 1.11, 0.95})
    draft.rows[0].repeats.push_back(test::repeat_of(RepeatKind::spread, 1, step_s));
  EXPECT_THAT(contenders(judged(draft)), SizeIs(Gt(2)));
}

/// Twelve members of which the first nine take what was predicted of them, 1 s and more. The last
/// three were predicted to take 0.95 s, and take 1.8 s.
test::Draft draft_with_wrong_predictions() {
  std::vector<double> steps_s;
  for (int member = 0; member < 9; ++member) steps_s.push_back(1 + 0.05 * member);
  steps_s.resize(12, 1.8);
  test::Draft draft = test::draft_of(steps_s);
  for (std::size_t member = 0; member < draft.rows.size(); ++member)
    draft.rows[member].record->predicted.throughput =
        16 / (member < 9 ? steps_s[member] * 1.001 : 0.95);
  return draft;
}

TEST(WrongPredictionsTest, RunsCountForMoreThanWhatWasPredicted) {
  test::Draft draft = draft_with_wrong_predictions();
  for (std::size_t member = 9; member < 12; ++member)
    draft.rows[member].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, 1.8));
  draft.rows[0].repeats.push_back(test::repeat_of(RepeatKind::final_round, 1, 1));
  const Scoreboard scoreboard = judged(draft);
  EXPECT_EQ(scoreboard.best(), 0U);
  const auto place = scoreboard.verdict()->place_of(0);
  ASSERT_TRUE(place);
  EXPECT_GT(scoreboard.verdict()->chance_near_best(*place), 0.95);
}

constexpr double much_time_s = 1e6;

/// How often each member is measured again, where round k takes a member's time times noise(member,
/// k).
std::vector<int> counts_of_finals(const test::Draft& draft, const std::vector<double>& steps_s,
                                  const std::function<double(std::size_t, int)>& noise,
                                  std::vector<std::size_t>* order = nullptr,
                                  std::chrono::seconds run = std::chrono::seconds(5)) {
  Scoreboard scoreboard = draft.scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  std::vector<int> counts(steps_s.size());
  auto now = *parse_time("2026-01-02T04:00:00.000000Z");
  while (const auto next = policy.after_search(much_time_s)) {
    EXPECT_EQ(next->kind, RepeatKind::final_round);
    EXPECT_EQ(next->round, ++counts[next->member]);
    if (order != nullptr) order->push_back(next->member);
    Repeat repeat = test::repeat_of(RepeatKind::final_round, next->round,
                                    steps_s[next->member] * noise(next->member, next->round));
    repeat.started_at = now;
    repeat.finished_at = now += run;
    scoreboard.repeat(next->member, repeat);
  }
  EXPECT_TRUE(scoreboard.finals().is_done);
  return counts;
}

double quiet(std::size_t /*member*/, int /*round*/) {
  return 1;
}
double noisy(std::size_t member, int round) {
  return 1 + 0.3 * static_cast<double>((3 * member + 5 * static_cast<std::size_t>(round)) % 7) / 7;
}

TEST(WrongPredictionsTest, FinalsEndWithWhatIsFast) {
  const test::Draft draft = draft_with_wrong_predictions();
  std::vector<double> steps_s;
  for (const Row& row : draft.rows) steps_s.push_back(mean_step_s(row.record->measurement));
  std::vector<std::size_t> order;
  const std::vector<int> counts = counts_of_finals(draft, steps_s, quiet, &order);
  EXPECT_GT(counts[0], 0) << "what is the answer was measured again";
  EXPECT_LE(order.size(), 24U);
}

TEST(FinalRunTest, WhatIsClearIsRunOnceMore) {
  EXPECT_THAT(counts_of_finals(test::draft_of({1, 1.3, 1.5}), {1, 1.3, 1.5}, quiet),
              ElementsAre(1, 1, 0));
}

TEST(FinalRunTest, TheBaselineRunsOnceBesideTheFinalists) {
  test::Draft draft = test::draft_of({3, 1, 1.01, 2});
  draft.baseline = 0;
  const std::vector<int> counts = counts_of_finals(draft, {3, 1, 1.01, 2}, noisy);
  EXPECT_EQ(counts[0], 1);
  EXPECT_GE(counts[1], 3);
  EXPECT_EQ(counts[3], 0);
  // Of a baseline that may be the best it is not known after one run.
  draft.baseline = 2;
  EXPECT_GE(counts_of_finals(draft, {3, 1, 1.01, 2}, noisy)[2], 3);
}

// Either could be the better one, but hardly by more than 1 %.
TEST(FinalRunTest, EqualOnesThatHardlyDifferNeedFewRuns) {
  EXPECT_THAT(counts_of_finals(test::draft_of({1, 1.001}), {1, 1.001}, quiet), Each(Lt(5)));
}

TEST(FinalRunTest, WhatIsNotToldApartRunsOnWithinTheTime) {
  const std::vector<int> counts =
      counts_of_finals(test::draft_of({1, 1.01, 3}), {1, 1.01, 3}, noisy);
  EXPECT_GE(counts[0], 3);
  EXPECT_LE(counts[0], 2 * FinalRounds{}.count) << "half of what the search took, or six rounds";
  EXPECT_EQ(counts[2], 0);
}

TEST(FinalRunTest, LongRunsEndAfterHalfOfTheSearch) {
  const auto counts_with = [&](std::chrono::seconds run) {
    const std::vector<int> counts =
        counts_of_finals(test::draft_of({1, 1.01, 3}), {1, 1.01, 3}, noisy, nullptr, run);
    return counts[0] + counts[1];
  };
  // Five minutes of runs, or a first round of both.
  EXPECT_EQ(counts_with(std::chrono::seconds(100)), 3);
  EXPECT_EQ(counts_with(std::chrono::seconds(500)), 2);
  EXPECT_GT(counts_with(std::chrono::seconds(5)), 6);
}

TEST(FinalRunTest, TurnsGoBackAndForth) {
  std::vector<std::size_t> order;
  const auto alternating = [](std::size_t member, int round) {
    return (member + static_cast<std::size_t>(round)) % 2 == 0 ? 1.0 : 1.05;
  };
  counts_of_finals(test::draft_of({1, 1.001}), {1, 1}, alternating, &order);
  ASSERT_GE(order.size(), 4U);
  EXPECT_EQ(order[1], order[2]) << "the last of a round is the first of the next";
  EXPECT_NE(order[0], order[1]);
}

TEST(FinalRunTest, OneAloneIsRunForItsInterval) {
  for (const Metric metric : {Metric::throughput, Metric::latency}) {
    test::Draft draft = test::draft_of({1});
    draft.metric = metric;
    EXPECT_THAT(counts_of_finals(draft, {1}, quiet), ElementsAre(1));
    EXPECT_TRUE(std::isfinite(judged(draft).reported_value(0)->ci_high));
  }
}

TEST(FinalRunTest, TheBestIsTheFastestWithLatencyToo) {
  test::Draft draft = test::draft_of({1.3, 1});
  draft.metric = Metric::latency;
  EXPECT_EQ(judged(draft).best(), 1U);
}

TEST(FinalRunTest, WhatFailsIsNotTriedForEver) {
  Scoreboard scoreboard = test::draft_of({1, 1}).scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  int tries = 0;
  while (const auto next = policy.after_search(much_time_s)) {
    Repeat repeat = test::repeat_of(RepeatKind::final_round, next->round, 1);
    repeat.measurement.status = Status::failed;
    scoreboard.repeat(next->member, repeat);
    ASSERT_LE(++tries, 4);
  }
  EXPECT_GE(tries, 2);
}

/// So many results, each a little slower than the one before, and one that was raced out.
test::Draft searched(std::size_t num_results) {
  std::vector<double> steps_s;
  for (std::size_t i = 0; i < num_results; ++i) steps_s.push_back(1 + 0.1 * static_cast<double>(i));
  test::Draft draft = test::draft_of(steps_s);
  for (Row& row : draft.rows) row.record->is_alone = true;
  return draft;
}

TEST(RunAgainPolicyTest, TheBestIsRepeatedTwiceFromFiveResultsOn) {
  for (const std::size_t num_results : {4U, 5U}) {
    Scoreboard scoreboard = searched(num_results).scoreboard();
    RunAgainPolicy policy(scoreboard, {.repeats_best = true});
    const bool is_repeated = num_results == 5;
    const auto first = policy.during_search(much_time_s);
    EXPECT_EQ(first.has_value(), is_repeated);
    EXPECT_EQ(policy.during_search(much_time_s).has_value(), is_repeated);
    EXPECT_FALSE(policy.during_search(much_time_s));
    if (!first) continue;
    EXPECT_EQ(first->member, 0U);
    EXPECT_EQ(first->kind, RepeatKind::spread);
    EXPECT_EQ(first->round, 1);
    EXPECT_THAT(first->avoided_ranks, ElementsAre(2, 3));
  }
}

TEST(RunAgainPolicyTest, ExpectsFinalsUntilTheyAreOver) {
  test::Draft draft = test::draft_of({1, 1.002, 1.004});
  Scoreboard scoreboard = draft.scoreboard();
  RunAgainPolicy policy(scoreboard, {});
  EXPECT_GT(policy.usual_final_s(), 0);
  const ExpectedRuns before = policy.expected_finals(100);
  EXPECT_LT(before.low, before.likely);
  EXPECT_GT(before.high, before.likely);
  double runs = 0;
  while (const auto again = policy.after_search(much_time_s)) {
    scoreboard.repeat(again->member, test::repeat_of(*again->kind, again->round, 1));
    const ExpectedRuns left = policy.expected_finals(100);
    EXPECT_GT(left.likely, 0);
    EXPECT_LE(left.low, left.likely);
    ASSERT_LT(++runs, 1000);
  }
  EXPECT_GT(runs, 0);
  EXPECT_EQ(policy.expected_finals(100).high, 0);
}

TEST(RunAgainPolicyTest, ExpectsNoFinalsOfWhatIsAlone) {
  Scoreboard scoreboard = searched(1).scoreboard();
  EXPECT_EQ(RunAgainPolicy(scoreboard, {.is_alone_in_space = true}).expected_finals(100).high, 0);
  EXPECT_EQ(RunAgainPolicy(scoreboard, {.is_complete = true}).expected_finals(100).high, 0);
}

TEST(RunAgainPolicyTest, LongFinalsAreExpectedToHaveFewerRuns) {
  test::Draft draft = searched(5);
  Scoreboard scoreboard = draft.scoreboard();
  const double usual = RunAgainPolicy(scoreboard, {}).expected_finals(100).likely;
  const FinalRounds in_short_time{.longest_s = 20};
  const RunAgainPolicy policy(scoreboard, {.rounds = in_short_time});
  EXPECT_LT(policy.expected_finals(100).likely, usual);
  EXPECT_LE(policy.expected_finals(100).likely * policy.usual_final_s(), 21);
}

TEST(RunAgainPolicyTest, RepeatsOfAnEarlierJobCount) {
  test::Draft draft = searched(5);
  draft.rows[0].repeats = {test::repeat_of(RepeatKind::spread, 1, 1)};
  Scoreboard scoreboard = draft.scoreboard();
  RunAgainPolicy policy(scoreboard, {.repeats_best = true});
  EXPECT_EQ(policy.during_search(much_time_s)->round, 2);
  EXPECT_FALSE(policy.during_search(much_time_s));
}

TEST(RunAgainPolicyTest, NothingIsRepeatedWithoutTime) {
  Scoreboard scoreboard = searched(5).scoreboard();
  RunAgainPolicy policy(scoreboard, {.repeats_best = true});
  // A run took 9.3 s by its record, and 20 of them are to fit.
  EXPECT_FALSE(policy.during_search(180));
  EXPECT_TRUE(policy.during_search(190));
}

TEST(RunAgainPolicyTest, WhatWasRacedOutCloseToTheBestBesideANeighbourRunsAgain) {
  test::Draft draft = test::draft_of({1, 1.04, 1.06, 1.04});
  for (const std::size_t member : {1U, 2U, 3U})
    draft.rows[member].record->measurement.status = Status::raced_out;
  draft.rows[3].record->is_alone = true;
  Scoreboard scoreboard = draft.scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  const auto again = policy.after_search(much_time_s);
  EXPECT_EQ(again->member, 1U);
  EXPECT_FALSE(again->kind);
  EXPECT_TRUE(policy.is_rerun(1));
  EXPECT_EQ(policy.after_search(much_time_s)->kind, RepeatKind::final_round);
}

TEST(RunAgainPolicyTest, WhatIsCloseIsSoInTheTargetsTime) {
  test::Draft draft = test::draft_of({1, 1.04, 1.3});
  for (const std::size_t member : {1U, 2U})
    draft.rows[member].record->measurement.status = Status::raced_out;
  // 1.5, 2.04 and 1.55 s there.
  draft.rows[0].overheads = {0.5};
  draft.rows[1].overheads = {1};
  draft.rows[2].overheads = {0.25};
  draft.target = test::constants_of(1, {1});
  Scoreboard scoreboard = draft.scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  const auto again = policy.after_search(much_time_s);
  EXPECT_EQ(again->member, 2U);
  EXPECT_FALSE(again->kind);
  EXPECT_EQ(policy.after_search(much_time_s)->kind, RepeatKind::final_round);
}

TEST(RunAgainPolicyTest, WhatAnEarlierJobHasMeasuredAgainIsNotRunTwice) {
  test::Draft draft = test::draft_of({1, 1.3});
  for (const std::size_t member : {0U, 1U})
    draft.rows[member].repeats = {
        test::repeat_of(RepeatKind::final_round, 1, member == 0 ? 1 : 1.3)};
  Scoreboard scoreboard = draft.scoreboard();
  RunAgainPolicy policy(scoreboard, {.races = true});
  EXPECT_FALSE(policy.after_search(much_time_s));
  EXPECT_TRUE(scoreboard.finals().is_done);
  EXPECT_THAT(scoreboard.finals().finalists, ElementsAre(0, 1));
}

TEST(RunAgainPolicyTest, SaysWhyThereAreNoFinals) {
  const auto reason = [](test::Draft draft, const RunAgainPolicy::Options& options,
                         double time_left_s = much_time_s) {
    Scoreboard scoreboard = draft.scoreboard();
    RunAgainPolicy policy(scoreboard, options);
    EXPECT_FALSE(policy.after_search(time_left_s));
    EXPECT_FALSE(scoreboard.finals().is_done);
    return scoreboard.finals().reason;
  };
  EXPECT_EQ(reason(searched(1), {}), "there is nothing to compare it with");
  EXPECT_EQ(reason(searched(1), {.races = true, .is_alone_in_space = true}),
            "there is nothing to compare it with");
  EXPECT_EQ(reason(searched(2), {.deaths = {{0, 2}, {1, 2}}}), "the job died in it twice");
  EXPECT_EQ(reason(test::draft_of({1, 1}), {}, 9),
            "the time limit leaves less than the 9.32 s that a run takes");
  EXPECT_EQ(reason({}, {}), "") << "nothing gave a result";
}

}  // namespace
}  // namespace dstune
