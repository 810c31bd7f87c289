#include "dstune/search/tuner.hpp"

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
  space.members.resize(static_cast<std::size_t>(count));
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
