// Tiny engines that measure what DeepSpeed's work costs: which ones, and what their failures cost.
#include "dstune/instrument/target_measuring.hpp"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_workers.hpp"
#include "target/trial_runs.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<TinyEngine>& pair_engines() {
  static const std::vector<TinyEngine> engines = tiny_engines({2, 1}, newest_release);
  return engines;
}

double count_of(const TinyEngine& engine, Overhead overhead) {
  return engine.overheads[static_cast<std::size_t>(overhead)];
}

TEST(TinyEngines, TheFirstOnesHaveEveryStage) {
  std::set<int> stages;
  for (std::size_t each = 0; each < min_tiny_engines; ++each)
    stages.insert(pair_engines().at(each).experiment.config.zero_stage);
  EXPECT_EQ(stages, (std::set<int>{0, 1, 2, 3}));
}

TEST(TinyEngines, DifferInWhatTheCostsCount) {
  using enum Overhead;
  for (const Overhead overhead :
       {module_call, gradient_hook, gathering_hook, sub_group, offload_copy, all_reduce_call,
        all_gather_call, reduce_scatter_call, communicated_byte}) {
    std::vector<double> counts;
    for (const TinyEngine& engine : pair_engines()) counts.push_back(count_of(engine, overhead));
    EXPECT_GE(std::ranges::max(counts), 2 * std::max(1.0, std::ranges::min(counts)))
        << to_text(overhead);
  }
  std::set<std::string> names;
  for (const TinyEngine& engine : pair_engines()) {
    EXPECT_TRUE(names.insert(engine.experiment.name).second) << engine.experiment.name;
    EXPECT_EQ(count_of(engine, optimizer_step), 1);
    EXPECT_EQ(engine.experiment.ds_config["train_batch_size"],
              2 * engine.experiment.config.accumulation_steps);
  }
}

TEST(TinyEngines, OneRankHasNoNetwork) {
  const auto alone = tiny_engines({1, 1}, newest_release);
  EXPECT_GE(alone.size(), min_tiny_engines);
  EXPECT_LT(alone.size(), pair_engines().size());
  for (const TinyEngine& engine : alone)
    EXPECT_EQ(count_of(engine, Overhead::communicated_byte), 0) << engine.experiment.name;
}

TEST(TinyEngines, EveryReleaseTakesThem) {
  for (const char* release : {"0.16.9", "0.18.9", "0.19.6"})
    EXPECT_EQ(tiny_engines({4, 2}, *parse_version(release)).size(), pair_engines().size());
}

/// A machine twice as slow in its host's work and half as slow in its network's is found by them.
TEST(TinyEngines, TellAMachineFromAnother) {
  const TargetConstants& shipped = target_constants(false);
  TimeCalibration truth = shipped.time;
  for (std::size_t each = 0; each < num_overheads; ++each)
    if (static_cast<Overhead>(each) != Overhead::recompute)
      truth.costs_s[each] *= is_of_network(static_cast<Overhead>(each)) ? 0.5 : 2;
  std::vector<CalibrationPoint> points;
  for (const TinyEngine& engine : pair_engines())
    points.push_back({0.003, truth.target_s(0.003, Precision::fp32, engine.overheads),
                      Precision::fp32, engine.overheads});
  const TargetConstants fit = fit_machine(points, shipped);
  for (std::size_t each = 0; each < num_overheads; ++each) {
    if (truth.costs_s[each] == 0) continue;
    EXPECT_NEAR(fit.time.costs_s[each] / truth.costs_s[each], 1, 0.1)
        << to_text(static_cast<Overhead>(each));
  }
}

struct Measuring {
  explicit Measuring(std::map<std::string, Behaviour> behaviours)
      : workers(std::move(behaviours)), driver(workers, {}) {}

  /// Until as many runs have begun.
  std::vector<CalibrationPoint> run(std::size_t runs) {
    TrialRuns trials(driver,
                     {.world_ranks = {0, 1}, .abort_grace_s = 0.01, .is_to_be_ended = [this, runs] {
                        return workers.ran().size() >= runs;
                      }});
    TargetMeasuring measuring([&](const Trial& trial) { return trials.run(trial); },
                              {.limit_s = 1e9, .timeout_s = 5, .drain_timeout_s = 0});
    auto points = measuring.run(pair_engines());
    failure = measuring.failure();
    return points;
  }

  FakeWorkers workers;
  AttemptDriver driver;
  std::string failure;
};

TEST(TargetMeasuringTest, EachRunsHereAndInTheEngineAndThenAllAgain) {
  Measuring one({});
  const std::size_t all = pair_engines().size();
  const auto points = one.run(3 * all);
  // The last one is cut short or just ends.
  EXPECT_GE(points.size(), 3 * all / 2 - 1);
  EXPECT_LE(points.size(), 3 * all / 2);
  EXPECT_EQ(one.workers.ran().at(0), pair_engines().front().experiment.name);
  EXPECT_EQ(one.workers.ran().at(1), pair_engines().front().experiment.name);
  EXPECT_EQ(one.workers.times_ran(pair_engines().front().experiment.name), 4);
  EXPECT_NEAR(points.front().target_s, 0.11, 1e-9);
  EXPECT_EQ(points.front().overheads, pair_engines().front().overheads);
  EXPECT_THAT(one.failure, IsEmpty());
}

TEST(TargetMeasuringTest, AFailureCostsItsPoint) {
  const std::string failing = pair_engines().at(1).experiment.name;
  Measuring one({{failing, Behaviour::throws}});
  const std::size_t all = pair_engines().size();
  const auto points = one.run(2 * (all - 1) + 1);
  EXPECT_GE(points.size(), all - 2);
  EXPECT_EQ(one.workers.times_ran(failing), 1) << "nor is it tried in the engine, or again";
  EXPECT_THAT(one.failure, HasSubstr("a bug"));
  EXPECT_THAT(one.failure, HasSubstr(failing));
}

TEST(TargetMeasuringTest, ALostRankEndsIt) {
  const std::string losing = pair_engines().at(2).experiment.name;
  Measuring one({{losing, Behaviour::loses_device}});
  const auto points = one.run(1000);
  EXPECT_THAT(points, SizeIs(2));
}

TEST(TargetMeasuringTest, NothingBeginsThatWouldEndTooLate) {
  FakeWorkers workers({});
  AttemptDriver driver(workers, {});
  TrialRuns trials(driver, {.world_ranks = {0, 1}});
  const auto run = [&](const Trial& trial) { return trials.run(trial); };
  TargetMeasuring late(run, {.limit_s = 0});
  EXPECT_THAT(late.run(pair_engines()), SizeIs(min_tiny_engines)) << "as many as are needed";
  TargetMeasuring too_late(run, {.limit_s = 0, .last_s = 0});
  EXPECT_LE(too_late.run(pair_engines()).size(), 1U);
}

}  // namespace
}  // namespace dstune
