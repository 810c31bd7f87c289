#include "dstune/search/tuner.hpp"

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

/// Members of which none is planned; sizes of one configuration where micro-batches are searched.
PlannedSpace hopeless_space(int count, PlanStatus status, bool is_size_searched) {
  auto space = plain_space(count);
  for (PlannedMember& member : space.members) {
    member.planned.status = status;
    if (is_size_searched) member.micro_batch_chain = 0;
  }
  return space;
}

TEST(TunerTest, WhereNothingIsPlannedNothingIsSearched) {
  for (const char* type : {"gridsearch", "random", "model_based", "race"})
    for (const int count : {0, 1, 2})
      for (const auto status : {PlanStatus::infeasible, PlanStatus::pruned})
        for (const bool is_size_searched : {false, true})
          for (const bool is_unplanned : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << type << ' ' << count << ' ' << is_size_searched << ' ' << is_unplanned);
            auto space = hopeless_space(count, status, is_size_searched);
            space.is_unplanned = is_unplanned;
            const auto tuner = make_tuner(type, space, {});
            EXPECT_FALSE(tuner->next());
            EXPECT_TRUE(tuner->is_done());
            EXPECT_THAT(tuner->skipped(), IsEmpty());
            EXPECT_FALSE(tuner->chance_of_better());
          }
}

TEST(TunerTest, ASearchInWhichNothingRunsEnds) {
  for (const char* type : {"gridsearch", "random", "model_based", "race"})
    for (const int count : {1, 2})
      for (const auto status : {Status::failed, Status::out_of_memory, Status::timed_out})
        for (const bool is_size_searched : {false, true})
          for (const bool is_unplanned : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << type << ' ' << count << ' ' << is_size_searched << ' ' << is_unplanned);
            auto space = hopeless_space(count, PlanStatus::planned, is_size_searched);
            space.is_unplanned = is_unplanned;
            for (std::size_t member = 0; member < space.members.size(); ++member)
              space.members[member].planned.experiment.config.micro_batch =
                  static_cast<std::int64_t>(member) + 1;
            const auto tuner = make_tuner(type, space, {});
            int num_run = 0;
            while (const auto member = tuner->next()) {
              tuner->observe(*member, ended(status));
              ASSERT_LE(++num_run, count);
            }
            EXPECT_GT(num_run, 0);
            EXPECT_TRUE(tuner->is_done());
            EXPECT_EQ(num_run + std::ssize(tuner->skipped()), count);
            EXPECT_FALSE(tuner->chance_of_better());
          }
}

TEST(TunerTest, KnownResultsAreNotRunAgain) {
  const auto tuner = make_tuner("gridsearch", plain_space(3), {});
  tuner->observe(1, ended(Status::ok, 4.0));
  EXPECT_THAT(take_all(*tuner), ElementsAre(0, 2));
}

TEST(TunerTest, EarlyStoppingCountsFromTheBestOne) {
  TuningOptions options;
  options.early_stopping = 2;
  const auto tuner = make_tuner("gridsearch", plain_space(6), options);
  for (const double value : {1.0, 3.0, 2.0})
    tuner->observe(*tuner->next(), ended(Status::ok, value));
  EXPECT_FALSE(tuner->is_done());
  tuner->observe(*tuner->next(), ended(Status::failed));
  EXPECT_TRUE(tuner->is_done());
  EXPECT_FALSE(tuner->next());
  ASSERT_EQ(tuner->skipped().size(), 2U);
  EXPECT_THAT(tuner->skipped()[0].reason, HasSubstr("early stopping"));
}

// DeepSpeed looks for the largest figure whatever it counts: its best latency is the longest.
TEST(TunerTest, LatencyIsBetterWhereItIsSmaller) {
  TuningOptions options;
  options.metric = Metric::latency;
  options.early_stopping = 2;
  const auto tuner = make_tuner("gridsearch", plain_space(6), options);
  for (const double value : {9.0, 8.0, 7.0, 6.0})
    tuner->observe(*tuner->next(), ended(Status::ok, value));
  EXPECT_FALSE(tuner->is_done());
  tuner->observe(*tuner->next(), ended(Status::ok, 6.5));
  tuner->observe(*tuner->next(), ended(Status::ok, 6.5));
  EXPECT_TRUE(tuner->is_done());
}

TEST(TunerTest, EarlyStoppingComparesWithWhatTheBestIsWorthByNow) {
  TuningOptions options;
  options.early_stopping = 2;
  for (const bool is_revised : {true, false}) {
    const auto tuner = make_tuner("gridsearch", plain_space(6), options);
    tuner->observe(*tuner->next(), ended(Status::ok, 10.0));
    tuner->observe(*tuner->next(), ended(Status::ok, 9.0));
    if (is_revised) {
      tuner->revise(0, ended(Status::ok, 1.0));
      tuner->revise(1, ended(Status::ok, 0.9));
    }
    tuner->observe(*tuner->next(), ended(Status::ok, 2.0));
    EXPECT_EQ(tuner->is_done(), !is_revised);
  }
}

TEST(TunerTest, EarlyStoppingEndsASearchInWhichEverythingFails) {
  TuningOptions options;
  options.early_stopping = 3;
  const auto tuner = make_tuner("gridsearch", plain_space(9), options);
  int run = 0;
  while (const auto member = tuner->next()) {
    tuner->observe(*member, ended(Status::failed));
    ++run;
  }
  EXPECT_EQ(run, 3);
}

TEST(TunerTest, NothingIsBegunThatEarlyStoppingCouldForbid) {
  TuningOptions options;
  options.early_stopping = 2;
  for (const char* type : {"gridsearch", "random"}) {
    const auto tuner = make_tuner(type, plain_space(48), options);
    EXPECT_THAT(take_all(*tuner), ElementsAre(0, 1)) << "both may bring nothing";
    EXPECT_FALSE(tuner->is_done());
    tuner->observe(1, ended(Status::ok, 5.0));
    EXPECT_THAT(take_all(*tuner), ElementsAre(2)) << "beside 0";
    tuner->observe(0, ended(Status::ok, 6.0));
    EXPECT_THAT(take_all(*tuner), ElementsAre(3));
    tuner->observe(2, ended(Status::ok, 4.0));
    EXPECT_THAT(take_all(*tuner), IsEmpty());
    tuner->observe(3, ended(Status::failed));
    EXPECT_TRUE(tuner->is_done());
    EXPECT_EQ(tuner->skipped().size(), 44U);
  }
}

TEST(TunerTest, ZeroTurnsEarlyStoppingOff) {
  TuningOptions options;
  options.early_stopping = 0;
  const auto tuner = make_tuner("gridsearch", plain_space(20), options);
  int run = 0;
  while (const auto member = tuner->next()) {
    tuner->observe(*member, ended(Status::ok, 20.0 - run));
    ++run;
  }
  EXPECT_EQ(run, 20);
}

}  // namespace
}  // namespace dstune
