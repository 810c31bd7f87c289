// A micro-batch that is an integer gives way to smaller ones where it does not run.
#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Two stages with sizes from 1 to 32, of which the config asks for 8 or more.
PlannedSpace space_from_eight() {
  PlannedSpace space;
  space.is_unplanned = true;
  std::uint64_t chain = 0;
  for (const int stage : {1, 3}) {
    for (const std::int64_t size : {8, 16, 32, 1, 2, 4}) {
      PlannedMember& member =
          add_member(space, {.zero_stage = stage, .micro_batch = size}, {1, 1}, chain);
      member.planned.experiment.name = fmt::format("z{}_m{}", stage, size);
      member.is_below_lowest = size < 8;
    }
    ++chain;
  }
  space.baseline = 0;
  return space;
}

/// Runs a search in which sizes up to a limit of each stage run; the names in order.
struct Search {
  std::map<int, std::int64_t> largest;
  std::vector<std::string> ran{};
  std::vector<std::string> notes{};
  std::optional<std::size_t> baseline{};
  std::set<std::string> skipped{};

  void run(const PlannedSpace& space, const std::string& type, std::optional<int> trials = {}) {
    TuningOptions options;
    options.num_trials = trials;
    options.tuner_type = type;
    const auto tuner = make_tuner(type, space, options);
    const auto measure = [&](std::size_t member) {
      const TrainingConfig& config = space.experiment(member).config;
      const auto size = static_cast<double>(config.micro_batch);
      return config.micro_batch <= largest.at(config.zero_stage) ? around(size / (1 + 0.1 * size))
                                                                 : ended(Status::out_of_memory);
    };
    for (const std::size_t member : run_search(*tuner, measure))
      ran.push_back(space.experiment(member).name);
    notes = tuner->notes();
    baseline = tuner->baseline();
    for (const Tuner::Skipped& one : tuner->skipped())
      skipped.insert(space.experiment(one.member).name);
  }
  [[nodiscard]] bool has_run(const std::string& name) const {
    return std::ranges::find(ran, name) != ran.end();
  }
};

class FallbackTunerTest : public testing::TestWithParam<const char*> {};

TEST_P(FallbackTunerTest, WhereItRunsNothingSmallerIsTried) {
  const PlannedSpace space = space_from_eight();
  Search search{{{1, 16}, {3, 32}}};
  search.run(space, GetParam());
  for (const std::string& name : search.ran)
    for (const char* size : {"_m1", "_m2", "_m4"}) EXPECT_FALSE(name.ends_with(size)) << name;
  EXPECT_THAT(search.notes, IsEmpty());
  EXPECT_TRUE(search.skipped.contains("z1_m4"));
  EXPECT_EQ(search.baseline, 0U);
}

TEST_P(FallbackTunerTest, WhereItDoesNotRunSmallerOnesTakeItsPlace) {
  const PlannedSpace space = space_from_eight();
  Search search{{{1, 2}, {3, 4}}};
  search.run(space, GetParam());
  EXPECT_EQ(search.ran.front(), "z1_m8") << "the config's own comes first";
  EXPECT_TRUE(search.has_run("z1_m2"));
  EXPECT_TRUE(search.has_run("z3_m4"));
  EXPECT_FALSE(search.has_run("z1_m32"));
  ASSERT_FALSE(search.notes.empty());
  EXPECT_THAT(search.notes.front(), HasSubstr("stage 1"));
  ASSERT_TRUE(search.baseline);
  EXPECT_EQ(space.experiment(*search.baseline).name, "z1_m2");
}

INSTANTIATE_TEST_SUITE_P(Tuners, FallbackTunerTest, testing::Values("race", "gridsearch"),
                         [](const auto& type) { return std::string(type.param); });

TEST(FallbackStagesTest, AStageWhoseOwnSizeRunsKeepsIt) {
  const PlannedSpace space = space_from_eight();
  Search search{{{1, 2}, {3, 32}}};
  search.run(space, "gridsearch");
  EXPECT_TRUE(search.has_run("z1_m2"));
  EXPECT_FALSE(search.has_run("z3_m4"));
  EXPECT_THAT(search.notes, SizeIs(1));
}

TEST(FallbackStagesTest, TheCapOfTrialsHoldsOverAll) {
  for (const char* type : {"race", "gridsearch"}) {
    const PlannedSpace space = space_from_eight();
    Search search{{{1, 2}, {3, 2}}};
    search.run(space, type, 4);
    EXPECT_LE(search.ran.size(), 4U) << type;
  }
}

TEST(FallbackStagesTest, WhereNothingRunsTheSearchEnds) {
  const PlannedSpace space = space_from_eight();
  Search search{{{1, 0}, {3, 0}}};
  search.run(space, "race");
  EXPECT_LE(search.ran.size(), space.members.size());
  EXPECT_TRUE(search.has_run("z1_m1"));
}

class SmallerSizesTest : public SearchTest {
 protected:
  /// The plan as a job prepares it.
  PlannedSpace prepared(JobSpec& read, std::int64_t device_memory_bytes) {
    PlannedSpace space = plan(read, device_memory_bytes);
    if (!needs_smaller_sizes(read, space)) return space;
    read.has_smaller_sizes = true;
    return plan(read, device_memory_bytes);
  }
  static std::int64_t size_of(const PlannedMember& member) {
    return member.planned.experiment.config.micro_batch;
  }
};

TEST_F(SmallerSizesTest, WhatDoesNotFitByThePlanGivesWayBeforeAnythingRuns) {
  JobSpec read =
      job(R"("train_micro_batch_size_per_gpu": 64, "zero_optimization": {"stage": [0, 3]})");
  const PlannedSpace roomy = prepared(read, plenty_bytes);
  EXPECT_FALSE(read.has_smaller_sizes);
  ASSERT_TRUE(roomy.baseline);
  const std::int64_t whole = roomy.members[*roomy.baseline].planned.predicted.peak_memory_bytes;
  const PlannedSpace tight = prepared(read, whole / 2);
  EXPECT_TRUE(read.has_smaller_sizes);
  ASSERT_TRUE(tight.baseline);
  EXPECT_LT(size_of(tight.members[*tight.baseline]), 64);
  EXPECT_GT(tight.planned, 0U);
  for (const PlannedMember& member : tight.members) {
    EXPECT_FALSE(member.is_below_lowest) << "nothing is left to a run";
    EXPECT_FALSE(member.planned.status == PlanStatus::planned && size_of(member) >= 64);
  }
  ASSERT_FALSE(tight.warnings.empty());
  EXPECT_THAT(tight.warnings.front(),
              HasSubstr("no size from 64 on fits at stage 0: smaller ones"));
  EXPECT_EQ(tight.planned + tight.infeasible + tight.pruned, tight.total);
}

TEST_F(SmallerSizesTest, OneThatIsTheSmallestHasNoOther) {
  const JobSpec read = job(R"("train_micro_batch_size_per_gpu": 64, "autotuning":
      {"min_train_micro_batch_size_per_gpu": 64}, "zero_optimization": {"stage": 0})");
  const PlannedSpace tight = plan(read, 1 << 20);
  EXPECT_EQ(tight.planned, 0U);
  EXPECT_FALSE(needs_smaller_sizes(read, tight));
  EXPECT_FALSE(needs_smaller_sizes(job(R"("train_micro_batch_size_per_gpu": "auto")"), tight));
}

}  // namespace
}  // namespace dstune
