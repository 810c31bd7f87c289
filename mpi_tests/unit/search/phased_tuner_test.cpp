// The phases of a search for the micro-batch, on workloads whose answer is known.
#include <cmath>
#include <functional>
#include <optional>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_fixture.hpp"
#include "tuners.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using MeasureExperiment = std::function<Observation(const Experiment&)>;

class PhasedTunerTest : public SpaceTest {
 protected:
  /// A chain of sizes at a stage, in the given bucket size.
  void add_chain(int stage, std::int64_t largest, std::int64_t bucket = 1,
                 GroupShape shape = {2, 1}) {
    const auto chain = space_.members.size();
    for (const std::int64_t size : sizes_to(largest))
      add_member(space_, {.zero_stage = stage, .micro_batch = size, .reduce_bucket_size = bucket},
                 shape, chain)
          .planned.experiment.name = fmt::format("z{}_{}_{}_{}", stage, size, bucket, shape.size());
  }

  /// Runs the search to its end and leaves the names of what ran, and of the best of it.
  void search(const std::string& type, const MeasureExperiment& measure,
              const TuningOptions& options = {}, std::size_t slots = 1) {
    SpaceTest::search(
        type, [&](std::size_t member) { return measure(space_.experiment(member)); }, options,
        slots);
    names_.clear();
    for (const std::size_t member : ran_) names_.push_back(space_.experiment(member).name);
    best_.clear();
    std::optional<double> most;
    for (const auto& [member, observation] : ended_) {
      const auto value = observation.result();
      if (!value) continue;
      const double score = options.metric == Metric::latency ? -*value : *value;
      if (most && score <= *most) continue;
      most = score;
      best_ = space_.experiment(member).name;
    }
    skipped_ = tuner_->skipped();
    EXPECT_EQ(skipped_.size() + ran_.size(), planned_members(space_).size());
    EXPECT_THAT(skipped_, Each(Field(&Tuner::Skipped::reason, Not(IsEmpty()))));
  }
  void search_grid(const MeasureExperiment& measure) { search("gridsearch", measure); }

  [[nodiscard]] std::string reason(const std::string& name) const {
    for (const auto& [member, reason, kind] : skipped_)
      if (space_.experiment(member).name == name) return reason;
    return "it ran";
  }
  [[nodiscard]] long num_of_stage(int stage) const {
    return std::ranges::count_if(
        ran_, [&](std::size_t member) { return config(member).zero_stage == stage; });
  }

  std::vector<std::string> names_;
  std::string best_;
  std::vector<Tuner::Skipped> skipped_;
};

/// Samples a second: a step takes a constant, more at higher stages, and each sample some more.
double rising(const Experiment& experiment) {
  const auto size = static_cast<double>(experiment.config.micro_batch);
  return size / (4 * (1 + 0.02 * experiment.config.zero_stage) + 0.5 * size);
}

Observation rising_run(const Experiment& experiment) {
  return ok(rising(experiment));
}

TEST_F(PhasedTunerTest, ASingleOptimum) {
  add_chain(0, 40);
  search_grid([](const Experiment& experiment) {
    const double away = static_cast<double>(experiment.config.micro_batch - 26) / 40;
    return ok(100 - 100 * away * away);
  });
  EXPECT_THAT(best_, testing::AnyOf("z0_25_1_2", "z0_26_1_2", "z0_27_1_2"));
  EXPECT_LE(names_.size(), 10U);
}

TEST_F(PhasedTunerTest, APlateau) {
  add_chain(0, 64);
  search_grid([](const Experiment& experiment) {
    if (experiment.config.micro_batch > 50) return ended(Status::out_of_memory);
    return ok(std::min(10.0, static_cast<double>(experiment.config.micro_batch)));
  });
  EXPECT_LE(names_.size(), 9U);
  EXPECT_THAT(reason("z0_64_1_2"), "it ran");
  EXPECT_THAT(reason("z0_50_1_2"), HasSubstr("best of those tried around it"));
}

// Stage 0 has room for 4, stage 1 for 24, 2 for 26, 3 for 26, each a little slower at equal sizes.
TEST_F(PhasedTunerTest, AStageBoundary) {
  add_chain(0, 4);
  add_chain(1, 24);
  add_chain(2, 26);
  add_chain(3, 26);
  search_grid(rising_run);
  EXPECT_EQ(best_, "z2_26_1_2");
  EXPECT_EQ(names_[0], "z0_1_1_2");
  const auto first_of_stage_1 =
      std::find_if(names_.begin(), names_.end(), [](auto& name) { return name.starts_with("z1"); });
  EXPECT_EQ(*first_of_stage_1, "z1_4_1_2") << "from the largest that ran at the stage before";
  EXPECT_LE(names_.size(), 24U);
}

TEST_F(PhasedTunerTest, AHigherStageWithLessRoomIsNotTried) {
  add_chain(0, 16);
  add_chain(1, 12);
  search_grid(rising_run);
  EXPECT_EQ(best_, "z0_16_1_2");
  EXPECT_EQ(num_of_stage(1), 0);
  EXPECT_THAT(reason("z1_12_1_2"), HasSubstr("stage 1 can not improve"));
}

TEST_F(PhasedTunerTest, AHigherStageThatIsPredictedToBeWorseIsNotTried) {
  for (const int stage : {0, 1, 3}) add_chain(stage, 16);
  for (PlannedMember& member : space_.members) {
    const Experiment& experiment = member.planned.experiment;
    member.planned.predicted.throughput =
        rising(experiment) * (experiment.config.zero_stage == 3 ? 0.5 : 0.95);
  }
  search_grid(rising_run);
  EXPECT_GT(num_of_stage(1), 0);
  EXPECT_EQ(num_of_stage(3), 0);
  EXPECT_THAT(reason("z3_16_1_2"), HasSubstr("predicted"));
}

TEST_F(PhasedTunerTest, TheTargetsPredictionsDecideWhereThereAreSome) {
  for (const int stage : {0, 1}) add_chain(stage, 16);
  for (PlannedMember& member : space_.members) {
    const Experiment& experiment = member.planned.experiment;
    member.planned.predicted.throughput = rising(experiment);
    member.planned.predicted.target_throughput =
        rising(experiment) * (experiment.config.zero_stage == 1 ? 0.5 : 1);
  }
  search_grid(rising_run);
  EXPECT_EQ(num_of_stage(1), 0);
  EXPECT_THAT(reason("z1_16_1_2"), HasSubstr("predicted"));
}

TEST_F(PhasedTunerTest, RevisedValuesChooseTheSize) {
  add_chain(0, 4);
  TuningOptions options;
  options.num_tuning_micro_batch_sizes = 1;
  for (const bool is_revised : {false, true}) {
    const auto tuner = make_tuner("gridsearch", space_, options);
    std::vector<std::size_t> ran;
    while (const auto member = tuner->next()) {
      ran.push_back(*member);
      // The first is worth more than all by now.
      if (is_revised && ran.size() == 2) tuner->revise(ran[0], ok(100));
      tuner->observe(*member, ok(static_cast<double>(space_.micro_batch(*member))));
    }
    EXPECT_TRUE(tuner->is_done());
    ASSERT_GE(ran.size(), 3U);
    // The smallest and the largest have run; the search goes on beside the better one of them.
    EXPECT_EQ(ran[2], is_revised ? 2U : 1U);
  }
}

TEST_F(PhasedTunerTest, EverythingInfeasible) {
  add_chain(0, 8);
  add_chain(1, 8);
  for (auto& one : space_.members) one.planned.status = PlanStatus::infeasible;
  search_grid([](const Experiment&) { return ok(1); });
  EXPECT_THAT(names_, IsEmpty());
  EXPECT_THAT(skipped_, IsEmpty());
}

// DeepSpeed stops at nothing while everything fails.
TEST_F(PhasedTunerTest, EverythingFails) {
  for (const int stage : {0, 1, 2, 3})
    for (const std::int64_t bucket : {1, 2, 3}) add_chain(stage, 8, bucket);
  for (const char* type : {"gridsearch", "random", "model_based"}) {
    search(type, [](const Experiment&) { return ended(Status::failed); });
    EXPECT_THAT(names_, SizeIs(12)) << "the smallest of each chain";
    EXPECT_THAT(best_, IsEmpty());
    EXPECT_THAT(reason("z0_8_1_2"), HasSubstr("the smaller micro-batch 1 did not run"));
    TuningOptions options;
    options.early_stopping = 3;
    search(
        type, [](const Experiment&) { return ended(Status::failed); }, options);
    EXPECT_THAT(names_, SizeIs(3));
    EXPECT_THAT(reason("z3_8_1_2"), HasSubstr("early stopping"));
  }
}

TEST_F(PhasedTunerTest, OneConfiguration) {
  add_chain(2, 1);
  for (const char* type : {"gridsearch", "random", "model_based"}) {
    search(type, [](const Experiment&) { return ok(3); });
    EXPECT_THAT(names_, ElementsAre("z2_1_1_2"));
  }
}

TEST_F(PhasedTunerTest, NoiseOfTenPercent) {
  add_chain(0, 12);
  add_chain(1, 30);
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 30; ++turn) {
    double chosen = 0;
    double seen = 0;
    search_grid([&](const Experiment& experiment) {
      const double noise = 0.1 * (static_cast<double>(random() % 2001) / 1000 - 1);
      const double value = rising(experiment) * (1 + noise);
      if (value > seen) {
        seen = value;
        chosen = rising(experiment);
      }
      return ok(value);
    });
    Experiment best;
    best.config.micro_batch = 30;
    best.config.zero_stage = 1;
    EXPECT_GT(chosen, 0.8 * rising(best));
    EXPECT_LE(names_.size(), 24U);
  }
}

// Every third experiment falls on a node that takes 30 % longer.
TEST_F(PhasedTunerTest, ASlowNode) {
  add_chain(0, 12);
  add_chain(1, 30);
  int turn = 0;
  search(
      "gridsearch",
      [&](const Experiment& experiment) {
        return ok(rising(experiment) * (++turn % 3 == 0 ? 1 / 1.3 : 1));
      },
      {}, 3);
  EXPECT_TRUE(best_.starts_with("z1_")) << best_;
  EXPECT_GE(std::stoi(best_.substr(3)), 15) << best_;
}

// What DeepSpeed replaces by the stage alone: the user's other lists are a grid of the stage, with
// the sizes that were found.
TEST_F(PhasedTunerTest, TheGridOfTheStage) {
  for (const std::int64_t bucket : {1, 2, 3}) add_chain(1, 16, bucket);
  for (const char* type : {"gridsearch", "random", "model_based"}) {
    search(type, [](const Experiment& experiment) {
      return ok(rising(experiment) * (experiment.config.reduce_bucket_size == 3 ? 1.2 : 1));
    });
    EXPECT_EQ(best_, "z1_16_3_2") << type;
    EXPECT_THAT(names_, Contains("z1_16_2_2"));
    EXPECT_THAT(names_, Not(Contains("z1_3_2_2")));
    EXPECT_THAT(reason("z1_3_2_2"), HasSubstr("micro-batches 8, 12, 16 were tried"));
  }
}

// With recompute, say, there is room for more.
TEST_F(PhasedTunerTest, AConfigurationWithMoreRoomIsTriedWithMore) {
  add_chain(1, 16);
  add_chain(1, 28, 2);
  search_grid(rising_run);
  EXPECT_EQ(best_, "z1_28_2_2");
}

// The first configuration had room for as much, and did not need it.
TEST_F(PhasedTunerTest, SizesThatDoNotPayAreNotTriedWithOtherConfigurations) {
  add_chain(1, 1024);
  add_chain(1, 1024, 2);
  search_grid([](const Experiment& experiment) {
    return ok(std::min(30.0, static_cast<double>(experiment.config.micro_batch)));
  });
  for (const std::string& name : names_)
    EXPECT_THAT(name, testing::AllOf(Not(HasSubstr("_1024_")), Not(HasSubstr("_512_"))));
}

// Published tables of DeepSpeed end a stage whose first size does not run.
TEST_F(PhasedTunerTest, AStageWhoseStartFailsFallsBack) {
  add_chain(0, 20);
  add_chain(1, 24);
  search_grid([](const Experiment& experiment) {
    if (experiment.config.zero_stage == 1 && experiment.config.micro_batch > 12)
      return ended(Status::out_of_memory);
    return ok(rising(experiment) * (1 + experiment.config.zero_stage));
  });
  EXPECT_EQ(best_, "z1_12_1_2");
}

TEST_F(PhasedTunerTest, LatencyWantsTheSmallest) {
  add_chain(0, 16);
  TuningOptions options;
  options.metric = Metric::latency;
  search(
      "gridsearch",
      [](const Experiment& experiment) {
        return ok(4 + 0.5 * static_cast<double>(experiment.config.micro_batch));
      },
      options);
  EXPECT_EQ(best_, "z0_1_1_2");
}

TEST_F(PhasedTunerTest, EveryShapeIsSearchedFromTheStart) {
  add_chain(0, 8, 1, {1, 1});
  add_chain(0, 16, 1, {2, 1});
  search_grid(rising_run);
  EXPECT_THAT(names_, Contains("z0_1_1_1"));
  EXPECT_THAT(names_, Contains("z0_1_1_2"));
  EXPECT_EQ(best_, "z0_16_1_2");
}

TEST_F(PhasedTunerTest, TheCapCountsWhatIsRun) {
  for (const std::int64_t bucket : {1, 2, 3}) add_chain(1, 16, bucket);
  TuningOptions options;
  options.num_trials = 4;
  search("gridsearch", rising_run, options);
  EXPECT_THAT(names_, SizeIs(4));
  EXPECT_THAT(skipped_, Contains(SkippedFor("past the limit of experiments")));
}

TEST_F(PhasedTunerTest, WhatTheJournalKnowsIsNotRunAgain) {
  add_chain(0, 16);
  add_chain(0, 16, 2);
  search_grid(rising_run);
  std::ranges::sort(ended_, {}, [](const auto& each) { return each.first; });
  const auto tuner = resumed("gridsearch", ended_.size());
  EXPECT_FALSE(tuner->next());
  EXPECT_TRUE(tuner->is_done());
}

TEST_F(PhasedTunerTest, RaceTakesEverySizeForAMember) {
  add_chain(0, 6);
  search("race", rising_run);
  EXPECT_EQ(best_, "z0_6_1_2");
}

// Nobody plans: what is measured says what fits.
class UnplannedPhasesTest : public PhasedTunerTest {
 protected:
  UnplannedPhasesTest() { space_.is_unplanned = true; }

  /// Stage 0 has room for 20, stage 1 for 44, other buckets for less.
  [[nodiscard]] static double bytes(const Experiment& experiment) {
    const TrainingConfig& config = experiment.config;
    return (config.zero_stage == 0 ? 30'000 : 6'000) +
           1'000 * static_cast<double>(config.micro_batch + config.reduce_bucket_size);
  }
  Observation measure(const Experiment& experiment) {
    if (bytes(experiment) > 51'000) {
      ++num_out_of_memory_;
      return ended(Status::out_of_memory);
    }
    Observation observation = ok(rising(experiment));
    observation.device_bytes = static_cast<std::int64_t>(bytes(experiment));
    return observation;
  }
  void search_all(const std::string& type) {
    num_out_of_memory_ = 0;
    search(type, [&](const Experiment& experiment) { return measure(experiment); });
  }

  int num_out_of_memory_ = 0;
};

TEST_F(UnplannedPhasesTest, SizesDoubleAndTheFinerOnesFollow) {
  for (const char* const type : {"gridsearch", "random", "model_based"}) {
    space_.members.clear();
    add_chain(0, 64);
    add_chain(1, 64);
    search_all(type);
    EXPECT_EQ(std::vector(names_.begin(), names_.begin() + 6),
              (std::vector<std::string>{"z0_1_1_2", "z0_2_1_2", "z0_4_1_2", "z0_8_1_2", "z0_16_1_2",
                                        "z0_32_1_2"}))
        << type;
    EXPECT_EQ(best_, "z1_44_1_2") << type;
    EXPECT_LE(names_.size(), 26U) << type;
  }
}

TEST_F(UnplannedPhasesTest, WhatSurelyRunsOutIsNotStarted) {
  add_chain(0, 64);
  add_chain(1, 64);
  space_.device_memory_bytes = 51'000;
  search_all("gridsearch");
  EXPECT_THAT(best_, testing::AnyOf("z1_43_1_2", "z1_44_1_2"));
  EXPECT_LE(num_out_of_memory_, 4);
  EXPECT_THAT(names_, Not(Contains("z0_32_1_2")));
  EXPECT_THAT(reason("z0_32_1_2"), HasSubstr("needs "));
}

TEST_F(UnplannedPhasesTest, WhatRanOutTeachesTheOtherConfigurations) {
  add_chain(0, 64, 1);
  add_chain(0, 64, 3);  // larger buckets take more
  search_all("gridsearch");
  // Of the second one nothing is tried that ran out in the first.
  for (const std::string& name : names_)
    EXPECT_TRUE(!name.ends_with("_3_2") || std::stoi(name.substr(3)) <= 20) << name;
  EXPECT_THAT(reason("z0_21_3_2"), HasSubstr("needs no less memory than"));
}

TEST_F(UnplannedPhasesTest, WhatHasMoreRoomIsTriedWithMore) {
  add_chain(0, 64, 3);
  add_chain(0, 64, 1);
  search_all("gridsearch");
  EXPECT_EQ(best_, "z0_20_1_2");
}

TEST_F(UnplannedPhasesTest, AnInterruptedSearchRepeatsNothing) {
  add_chain(0, 64);
  add_chain(1, 64);
  space_.device_memory_bytes = 51'000;
  const auto first = make_tuner("gridsearch", space_, {});
  while (const auto member = first->next()) {
    ended_.emplace_back(*member, measure(space_.experiment(*member)));
    first->observe(*member, ended_.back().second);
    if (const auto next = resumed("gridsearch", ended_.size())->next()) {
      for (const auto& [each, observation] : ended_) EXPECT_NE(each, *next);
    }
  }
  EXPECT_GT(ended_.size(), 10U);
}

}  // namespace
}  // namespace dstune
