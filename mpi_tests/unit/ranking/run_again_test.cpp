#include "dstune/ranking/run_again.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "samples.hpp"

namespace dstune {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Lt;

TEST(FinalistsTest, AreTheBestAndAtMostTwoThatComeNear) {
  EXPECT_THAT(finalists(test::Draft{}.board()), IsEmpty());
  // sqrt(2) * 1 % * t(4) is 3.9 %.
  EXPECT_THAT(finalists(test::draft_of({1.03, 1, 1.05, 2}).board()), ElementsAre(1, 0));
  EXPECT_THAT(finalists(test::draft_of({1.03, 1, 1.01, 1.02, 1.005}).board()),
              ElementsAre(1, 4, 2));
}

TEST(FinalistsTest, AreMoreWhereRunsDifferMore) {
  test::Draft report = test::draft_of({1, 1.1});
  EXPECT_THAT(finalists(report.board()), ElementsAre(0));
  for (const double step_s : {0.9, 1.1})
    report.rows[0].repeats.push_back(test::repeat_of(RepeatKind::spread, 1, step_s));
  EXPECT_THAT(finalists(report.board()), ElementsAre(0, 1));
}

/// Runs finals, each taking its row's time times `noise` of its round, until none is wanted; how
/// many each row had.
std::vector<int> counts_of_finals(test::Draft& report, const std::vector<double>& steps_s,
                                  const std::vector<double>& noise) {
  std::vector<int> counts(steps_s.size());
  while (const auto next = next_final_run(report.board())) {
    EXPECT_EQ(next->round, ++counts[next->row]);
    const double factor = noise[static_cast<std::size_t>(next->round - 1) % noise.size()];
    report.rows[next->row].repeats.push_back(
        test::repeat_of(RepeatKind::final_round, next->round, steps_s[next->row] * factor));
  }
  return counts;
}

TEST(FinalRunTest, WhatIsClearlyNoBetterLeavesAfterTheSecond) {
  test::Draft report = test::draft_of({1, 1, 1});
  report.finals.finalists = {0, 1, 2};
  EXPECT_THAT(counts_of_finals(report, {1, 1.1, 1.2}, {1}), ElementsAre(3, 2, 2));
}

// Either could be the better one, but hardly by more than 1 %.
TEST(FinalRunTest, EqualOnesThatHardlyDifferNeedFewMore) {
  test::Draft report = test::draft_of({1, 1});
  report.finals.finalists = {0, 1};
  EXPECT_THAT(counts_of_finals(report, {1, 1.001}, {1}), Each(Lt(max_final_rounds)));
}

TEST(FinalRunTest, WhatIsNotToldApartRunsOnToTheEnd) {
  test::Draft report = test::draft_of({1, 1, 1});
  report.finals.finalists = {0, 1, 2};
  EXPECT_THAT(counts_of_finals(report, {1, 1.01, 1.5}, {1, 1.05}),
              ElementsAre(max_final_rounds, max_final_rounds, 2));
}

TEST(FinalRunTest, OneAloneIsRunForItsInterval) {
  for (const Metric metric : {Metric::throughput, Metric::latency}) {
    test::Draft report = test::draft_of({1});
    report.metric = metric;
    report.finals.finalists = {0};
    EXPECT_THAT(counts_of_finals(report, {1}, {1, 1.3}), ElementsAre(final_rounds));
  }
}

TEST(FinalRunTest, TheBestIsTheFastestWithLatencyToo) {
  test::Draft report = test::draft_of({1, 1});
  report.metric = Metric::latency;
  report.finals.finalists = {0, 1};
  EXPECT_THAT(counts_of_finals(report, {1.3, 1}, {1}), ElementsAre(2, 3));
}

TEST(FinalRunTest, WhatFailsIsNotTriedForEver) {
  test::Draft report = test::draft_of({1, 1});
  report.finals.finalists = {0, 1};
  int tries = 0;
  while (const auto next = next_final_run(report.board())) {
    Repeat repeat = test::repeat_of(RepeatKind::final_round, next->round, 1);
    repeat.measurement.status = Status::failed;
    report.rows[next->row].repeats.push_back(repeat);
    ++tries;
  }
  EXPECT_EQ(tries, 2 * min_final_rounds);
}

/// So many results, each a little slower than the one before, and one that was raced out.
test::Draft searched(std::size_t num_results) {
  std::vector<double> steps_s;
  for (std::size_t i = 0; i < num_results; ++i) steps_s.push_back(1 + 0.1 * static_cast<double>(i));
  test::Draft draft = test::draft_of(steps_s);
  for (Row& row : draft.rows) row.record->is_alone = true;
  return draft;
}

constexpr double much_time_s = 1e6;

TEST(RunAgainPolicyTest, TheBestIsRepeatedTwiceFromFiveResultsOn) {
  for (const std::size_t num_results : {4U, 5U}) {
    Scoreboard board = searched(num_results).board();
    RunAgainPolicy policy(board, {.repeats_best = true});
    const bool is_repeated = num_results == 5;
    const auto first = policy.during_search(much_time_s);
    EXPECT_EQ(first.has_value(), is_repeated);
    EXPECT_EQ(policy.during_search(much_time_s).has_value(), is_repeated);
    EXPECT_FALSE(policy.during_search(much_time_s));
    if (!first) continue;
    EXPECT_EQ(first->row, 0U);
    EXPECT_EQ(first->kind, RepeatKind::spread);
    EXPECT_EQ(first->round, 1);
    EXPECT_THAT(first->avoided_ranks, ElementsAre(2, 3));
  }
}

TEST(RunAgainPolicyTest, RepeatsOfAnEarlierJobCount) {
  test::Draft draft = searched(5);
  draft.rows[0].repeats = {test::repeat_of(RepeatKind::spread, 1, 1)};
  Scoreboard board = draft.board();
  RunAgainPolicy policy(board, {.repeats_best = true});
  EXPECT_EQ(policy.during_search(much_time_s)->round, 2);
  EXPECT_FALSE(policy.during_search(much_time_s));
}

TEST(RunAgainPolicyTest, NothingIsRepeatedWithoutTime) {
  Scoreboard board = searched(5).board();
  RunAgainPolicy policy(board, {.repeats_best = true});
  // A run took 9.3 s by its record, and 20 of them are to fit.
  EXPECT_FALSE(policy.during_search(180));
  EXPECT_TRUE(policy.during_search(190));
}

TEST(RunAgainPolicyTest, WhatWasRacedOutCloseToTheBestBesideANeighbourRunsAgain) {
  test::Draft draft = test::draft_of({1, 1.04, 1.06, 1.04});
  for (const std::size_t row : {1U, 2U, 3U})
    draft.rows[row].record->measurement.status = Status::raced_out;
  draft.rows[3].record->is_alone = true;
  Scoreboard board = draft.board();
  RunAgainPolicy policy(board, {.races = true});
  const auto again = policy.after_search(much_time_s);
  EXPECT_EQ(again->row, 1U);
  EXPECT_FALSE(again->kind);
  EXPECT_TRUE(policy.is_rerun(1));
  EXPECT_EQ(policy.after_search(much_time_s)->kind, RepeatKind::final_round);
}

TEST(RunAgainPolicyTest, WhatIsCloseIsSoInTheTargetsTime) {
  test::Draft draft = test::draft_of({1, 1.04, 1.3});
  for (const std::size_t row : {1U, 2U})
    draft.rows[row].record->measurement.status = Status::raced_out;
  // 1.5, 2.04 and 1.55 s there.
  draft.rows[0].overheads = {0.5};
  draft.rows[1].overheads = {1};
  draft.rows[2].overheads = {0.25};
  draft.target = test::constants_of(1, {1});
  Scoreboard board = draft.board();
  RunAgainPolicy policy(board, {.races = true});
  const auto again = policy.after_search(much_time_s);
  EXPECT_EQ(again->row, 2U);
  EXPECT_FALSE(again->kind);
  EXPECT_EQ(policy.after_search(much_time_s)->kind, RepeatKind::final_round);
}

TEST(RunAgainPolicyTest, FinalsComeInTurnsAndThenDecide) {
  Scoreboard board = test::draft_of({1, 1.001, 2}).board();
  RunAgainPolicy policy(board, {});
  std::vector<std::size_t> rows;
  while (const auto again = policy.after_search(much_time_s)) {
    rows.push_back(again->row);
    board.repeat(again->row, test::repeat_of(*again->kind, again->round, 1));
  }
  EXPECT_THAT(rows, ElementsAre(0, 1, 0, 1, 0, 1, 0));
  EXPECT_TRUE(board.finals().is_done);
}

TEST(RunAgainPolicyTest, SaysWhyThereAreNoFinals) {
  const auto reason = [](test::Draft draft, const RunAgainPolicy::Options& options,
                         double time_left_s = much_time_s) {
    Scoreboard board = draft.board();
    RunAgainPolicy policy(board, options);
    EXPECT_FALSE(policy.after_search(time_left_s));
    EXPECT_FALSE(board.finals().is_done);
    return board.finals().reason;
  };
  EXPECT_EQ(reason(searched(1), {}), "there is nothing to compare it with");
  EXPECT_EQ(reason(searched(1), {.races = true, .is_alone_in_space = true}),
            "there is nothing to compare it with");
  EXPECT_EQ(reason(searched(3), {}), "it ran alone, and no other comes near");
  EXPECT_EQ(reason(searched(3), {.deaths = {{0, 2}}}), "the job died in it twice");
  EXPECT_EQ(reason(test::draft_of({1, 1}), {}, 30),
            "the time limit leaves less than the 37.3 s that it takes");
  EXPECT_EQ(reason({}, {}), "") << "nothing gave a result";
}

}  // namespace
}  // namespace dstune
