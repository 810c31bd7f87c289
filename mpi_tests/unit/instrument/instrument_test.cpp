// The instruments as a job sees them: which keys their records have, and how far plans speak for
// them.
#include "dstune/instrument/instrument.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::ElementsAre;

WorkloadSpec spec_of(WorkloadKind kind) {
  WorkloadSpec spec;
  spec.kind = kind;
  return spec;
}

JobSpec job_of(const std::vector<WorkloadKind>& kinds) {
  JobSpec job;
  job.instruments.clear();
  for (const WorkloadKind kind : kinds) job.instruments.push_back(spec_of(kind));
  return job;
}

TEST(InstrumentTest, NamesAreThoseOfMetrics) {
  std::vector<std::string> names;
  for (const WorkloadKind kind :
       {WorkloadKind::transformer, WorkloadKind::synthetic, WorkloadKind::replay,
        WorkloadKind::plugin, WorkloadKind::deepspeed})
    names.emplace_back(make_instrument(spec_of(kind))->traits().name);
  EXPECT_THAT(names, ElementsAre("step", "synthetic", "replay", "plugin", "engine"));
}

TEST(InstrumentTest, ARecordsKeyIsThatOfEarlierReleases) {
  WorkloadSpec spec = spec_of(WorkloadKind::plugin);
  spec.options = {{"type", "plugin"}, {"layers", 3}};
  spec.library_hash = "0123";
  EXPECT_EQ(make_instrument(spec)->identity({}, {}), (json::Value{{"kind", 3},
                                                                  {"step_time_s", 0.0},
                                                                  {"time_scale", 0.0},
                                                                  {"table", nullptr},
                                                                  {"options", spec.options},
                                                                  {"library_hash", "0123"}}));
  EXPECT_EQ(
      make_instrument(spec_of(WorkloadKind::transformer))->identity({}, {}),
      (json::Value{{"kind", 0}, {"step_time_s", 0.0}, {"time_scale", 0.0}, {"table", nullptr}}));
}

TEST(InstrumentTest, OnlySomebodyElsesCodeIsSentTheConfiguration) {
  Experiment experiment;
  experiment.ds_config = {{"train_batch_size", 8}};
  EXPECT_EQ(make_instrument(spec_of(WorkloadKind::transformer))->input({}, experiment).ds_config,
            "");
  EXPECT_EQ(make_instrument(spec_of(WorkloadKind::plugin))->input({}, experiment).ds_config,
            R"({"train_batch_size":8})");
}

TEST(InstrumentTest, AnEngineIsVerificationWhereItRunsTheUsersScript) {
  WorkloadSpec spec = spec_of(WorkloadKind::deepspeed);
  spec.options = json::Value::object();
  EXPECT_EQ(make_instrument(spec)->traits().label, "engine");
  spec.options["script"] = "/there/train.py";
  EXPECT_EQ(make_instrument(spec)->traits().label, "verified");
}

TEST(InstrumentTest, PlansSpeakForOurOwnStepWhereverItStands) {
  using enum WorkloadKind;
  for (const auto& kinds :
       {std::vector{transformer}, {transformer, deepspeed}, {deepspeed, transformer}})
    EXPECT_TRUE(forecasts_of(job_of(kinds)).judges_here);
  EXPECT_FALSE(forecasts_of(job_of({deepspeed})).judges_here);
  EXPECT_TRUE(forecasts_of(job_of({deepspeed})).judges_target);
  EXPECT_FALSE(forecasts_of(job_of({synthetic})).judges_target);
  EXPECT_FALSE(forecasts_of(job_of({synthetic})).only_runs_tell);
  EXPECT_TRUE(forecasts_of(job_of({replay})).only_runs_tell);
}

TEST(InstrumentTest, ARaceNeedsOperationsThatGrowWithTheSamples) {
  JobSpec job;
  job.tuning.tuner_type = "race";
  const InstrumentTraits own = make_instrument(spec_of(WorkloadKind::transformer))->traits();
  const InstrumentTraits foreign = make_instrument(spec_of(WorkloadKind::plugin))->traits();
  EXPECT_TRUE(races(job, own));
  EXPECT_TRUE(races(job, foreign));
  job.tuning.metric = Metric::flops;
  EXPECT_TRUE(races(job, own));
  EXPECT_FALSE(races(job, foreign));
  job.tuning.tuner_type = "random";
  EXPECT_FALSE(races(job, own));
}

}  // namespace
}  // namespace dstune
