#include "dstune/search/tuner.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/core/keys.hpp"
#include "search_fixture.hpp"
#include "tuners.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

PlannedSpace plain_space(int count) {
  PlannedSpace space;
  for (int member = 0; member < count; ++member) space.members.emplace_back();
  return space;
}

std::vector<std::size_t> take_all(Tuner& tuner) {
  std::vector<std::size_t> taken;
  while (const auto member = tuner.next()) taken.push_back(*member);
  return taken;
}

TEST(TunerTest, GridsearchRunsEveryPlannedMemberInOrder) {
  auto space = plain_space(5);
  space.members[1].planned.status = PlanStatus::infeasible;
  space.members[3].planned.status = PlanStatus::pruned;
  for (const char* type : {"gridsearch", "random"}) {
    const auto tuner = make_tuner(type, space, {});
    EXPECT_FALSE(tuner->is_done());
    EXPECT_THAT(take_all(*tuner), ElementsAre(0, 2, 4));
    EXPECT_TRUE(tuner->is_done());
    EXPECT_THAT(tuner->skipped(), IsEmpty());
  }
}

TEST(TunerTest, TheKeysChoicesAreTheTuners) {
  std::vector<std::string_view> names;
  for (const TunerType& type : tuner_types) names.push_back(type.name);
  EXPECT_EQ(choices_of("autotuning", "/autotuning/tuner_type"), names);
}

/// A tuner in a small space: its type, the number of members, whether they are sizes of one
/// configuration, and whether nobody plans.
class SmallSpaceTest : public testing::TestWithParam<std::tuple<const char*, int, bool, bool>> {
 protected:
  std::unique_ptr<Tuner> tuner(PlanStatus status) {
    const auto [type, count, is_size_searched, is_unplanned] = GetParam();
    space_ = plain_space(count);
    space_.is_unplanned = is_unplanned;
    std::int64_t size = 0;
    for (PlannedMember& member : space_.members) {
      member.planned.status = status;
      member.planned.experiment.config.micro_batch = ++size;
      if (is_size_searched) member.micro_batch_chain = 0;
    }
    return make_tuner(type, space_, {});
  }

  PlannedSpace space_;
};

INSTANTIATE_TEST_SUITE_P(
    Tuners, SmallSpaceTest,
    testing::Combine(testing::Values("gridsearch", "random", "model_based", "race"),
                     testing::Values(0, 1, 2), testing::Bool(), testing::Bool()));

TEST_P(SmallSpaceTest, WhereNothingIsPlannedNothingIsSearched) {
  for (const auto status : {PlanStatus::infeasible, PlanStatus::pruned}) {
    const auto one = tuner(status);
    EXPECT_FALSE(one->next());
    EXPECT_TRUE(one->is_done());
    EXPECT_THAT(one->skipped(), IsEmpty());
    EXPECT_FALSE(one->chance_of_better());
  }
}

TEST_P(SmallSpaceTest, ASearchInWhichNothingRunsEnds) {
  for (const auto status : {Status::failed, Status::out_of_memory, Status::timed_out}) {
    const auto one = tuner(PlanStatus::planned);
    const auto ran = run_search(*one, [&](std::size_t) { return ended(status); });
    EXPECT_EQ(ran.empty(), space_.members.empty());
    EXPECT_EQ(ran.size() + one->skipped().size(), space_.members.size());
    EXPECT_FALSE(one->chance_of_better());
  }
}

TEST(TunerTest, KnownResultsAreNotRunAgain) {
  const auto tuner = make_tuner("gridsearch", plain_space(3), {});
  tuner->observe(1, ok(4.0));
  EXPECT_THAT(take_all(*tuner), ElementsAre(0, 2));
}

TuningOptions stopping_after(int experiments) {
  TuningOptions options;
  options.early_stopping = experiments;
  return options;
}

TEST(TunerTest, EarlyStoppingCountsFromTheBestOne) {
  const auto tuner = make_tuner("gridsearch", plain_space(6), stopping_after(2));
  for (const double value : {1.0, 3.0, 2.0}) tuner->observe(*tuner->next(), ok(value));
  EXPECT_FALSE(tuner->is_done());
  tuner->observe(*tuner->next(), ended(Status::failed));
  EXPECT_TRUE(tuner->is_done());
  EXPECT_FALSE(tuner->next());
  ASSERT_EQ(tuner->skipped().size(), 2U);
  EXPECT_THAT(tuner->skipped()[0].reason, HasSubstr("early stopping"));
  EXPECT_EQ(tuner->skipped()[0].kind, PruneKind::early_stopping);
}

TEST(TunerTest, AGridKnowsHowManyAreLeft) {
  auto space = plain_space(5);
  space.members[1].planned.status = PlanStatus::infeasible;
  space.baseline = 2;
  const auto tuner = make_tuner("gridsearch", space, {});
  for (const double left : {4, 3, 2, 1}) {
    EXPECT_EQ(tuner->expected_left()->likely, left);
    EXPECT_EQ(tuner->expected_left()->low, left);
    EXPECT_EQ(tuner->expected_left()->high, left);
    ASSERT_TRUE(tuner->next());
    EXPECT_EQ(tuner->expected_left()->likely, left - 1) << "while the member runs";
    if (left == 4) tuner->observe(2, ok(1));
  }
}

TEST(TunerTest, EarlyStoppingIsExpectedAsInSearchesInAnyOrder) {
  constexpr int num_members = 60, stops_after = 12, num_known = 9, num_searches = 2000;
  std::mt19937_64 random(1);
  std::vector<double> counts;
  std::optional<ExpectedRuns> expected;
  for (int search = 0; search < num_searches; ++search) {
    std::vector<double> values(num_members);
    std::iota(values.begin(), values.end(), 1);
    for (std::size_t left = num_members; left > 1; --left)
      std::swap(values[left - 1], values[random() % left]);
    // The best of those that are known ran fourth.
    std::iter_swap(values.begin() + 3,
                   std::max_element(values.begin(), values.begin() + num_known));
    EarlyStopping stopping(Metric::throughput, stops_after);
    std::size_t ran = 0;
    for (; ran < num_known; ++ran) stopping.observe(ran, values[ran]);
    expected = stopping.expected_left(num_members - num_known);
    for (; ran < num_members && !stopping.is_due(); ++ran) stopping.observe(ran, values[ran]);
    counts.push_back(static_cast<double>(ran - num_known));
  }
  std::ranges::sort(counts);
  EXPECT_NEAR(expected->low, counts[num_searches / 10], 1);
  EXPECT_NEAR(expected->likely, counts[num_searches / 2], 1);
  EXPECT_NEAR(expected->high, counts[num_searches * 9 / 10], 2);
}

TEST(TunerTest, NothingIsExpectedOfASearchThatEarlyStoppingHasEnded) {
  const auto tuner = make_tuner("gridsearch", plain_space(9), stopping_after(3));
  while (const auto member = tuner->next()) tuner->observe(*member, ended(Status::failed));
  EXPECT_EQ(tuner->expected_left()->high, 0);
}

// DeepSpeed looks for the largest figure whatever it counts: its best latency is the longest.
TEST(TunerTest, LatencyIsBetterWhereItIsSmaller) {
  TuningOptions options = stopping_after(2);
  options.metric = Metric::latency;
  const auto tuner = make_tuner("gridsearch", plain_space(6), options);
  for (const double value : {9.0, 8.0, 7.0, 6.0}) tuner->observe(*tuner->next(), ok(value));
  EXPECT_FALSE(tuner->is_done());
  tuner->observe(*tuner->next(), ok(6.5));
  tuner->observe(*tuner->next(), ok(6.5));
  EXPECT_TRUE(tuner->is_done());
}

TEST(TunerTest, EarlyStoppingComparesWithWhatTheBestIsWorthByNow) {
  const TuningOptions options = stopping_after(2);
  for (const bool is_revised : {true, false}) {
    const auto tuner = make_tuner("gridsearch", plain_space(6), options);
    tuner->observe(*tuner->next(), ok(10.0));
    tuner->observe(*tuner->next(), ok(9.0));
    if (is_revised) {
      tuner->revise(0, ok(1.0));
      tuner->revise(1, ok(0.9));
    }
    tuner->observe(*tuner->next(), ok(2.0));
    EXPECT_EQ(tuner->is_done(), !is_revised);
  }
}

TEST(TunerTest, EarlyStoppingEndsASearchInWhichEverythingFails) {
  const auto tuner = make_tuner("gridsearch", plain_space(9), stopping_after(3));
  EXPECT_THAT(run_search(*tuner, [](std::size_t) { return ended(Status::failed); }), SizeIs(3));
}

TEST(TunerTest, NothingIsBegunThatEarlyStoppingCouldForbid) {
  const TuningOptions options = stopping_after(2);
  for (const char* type : {"gridsearch", "random"}) {
    const auto tuner = make_tuner(type, plain_space(48), options);
    EXPECT_THAT(take_all(*tuner), ElementsAre(0, 1)) << "both may bring nothing";
    EXPECT_FALSE(tuner->is_done());
    tuner->observe(1, ok(5.0));
    EXPECT_THAT(take_all(*tuner), ElementsAre(2)) << "beside 0";
    tuner->observe(0, ok(6.0));
    EXPECT_THAT(take_all(*tuner), ElementsAre(3));
    tuner->observe(2, ok(4.0));
    EXPECT_THAT(take_all(*tuner), IsEmpty());
    tuner->observe(3, ended(Status::failed));
    EXPECT_TRUE(tuner->is_done());
    EXPECT_EQ(tuner->skipped().size(), 44U);
  }
}

TEST(TunerTest, ZeroTurnsEarlyStoppingOff) {
  const auto tuner = make_tuner("gridsearch", plain_space(20), stopping_after(0));
  double value = 20;
  EXPECT_THAT(run_search(*tuner, [&](std::size_t) { return ok(value--); }), SizeIs(20));
}

}  // namespace
}  // namespace dstune
