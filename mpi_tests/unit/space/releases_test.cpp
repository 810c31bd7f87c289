// One file for several releases of DeepSpeed: what each takes, and what an answer says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr Version v0_14_5{0, 14, 5}, v0_16_9{0, 16, 9}, v0_18_9{0, 18, 9}, v0_19_6{0, 19, 6},
    v0_19_8{0, 19, 8};

class ReleasesTest : public SpaceTest {
 protected:
  JobSpec job_for(Version version, const std::string& text) {
    version_ = version;
    return job(text);
  }
  json::Value first_config(Version version, const std::string& text) {
    version_ = version;
    return members(text).front().experiment.ds_config;
  }
  /// It has no effect where it is known, and the newest release would refuse it.
  void expect_dropped(const std::string& member, const std::string& name) {
    const std::string text = "{" + member + "}";
    EXPECT_THAT(job_for(v0_19_8, text).warnings,
                Contains(HasSubstr(name + " is left out of the answer")))
        << text;
    const auto config = first_config(v0_19_8, text).flatten();
    for (const auto& [key, value] : config.items()) EXPECT_THAT(key, Not(HasSubstr(name))) << text;
    EXPECT_THAT(job_for(v0_19_6, text).warnings,
                Not(Contains(HasSubstr("left out of the answer"))));
  }
};

TEST_F(ReleasesTest, WhatIsRemovedAndOffIsLeftOut) {
  expect_dropped(R"("amp": {"enabled": false})", "amp");
  expect_dropped(R"("elasticity": {"enabled": false})", "elasticity");
  expect_dropped(R"("curriculum_learning": {"enabled": false})", "curriculum_learning");
  expect_dropped(R"("progressive_layer_drop": {"enabled": false})", "progressive_layer_drop");
  expect_dropped(R"("sparse_gradients": false)", "sparse_gradients");
  expect_dropped(R"("graph_harvesting": false)", "graph_harvesting");
  expect_dropped(R"("nebula": {"enabled": false})", "nebula");
  expect_dropped(R"("quantize_training": {"enabled": false})", "quantize_training");
  expect_dropped(R"("eigenvalue": {"enabled": false})", "eigenvalue");
  expect_dropped(R"("compression_training": {"layer_reduction": {"enabled": false}})",
                 "compression_training");
  expect_dropped(R"("zero_optimization": {"stage": 3, "mics_shard_size": -1})", "mics_shard_size");
  expect_dropped(R"("zero_optimization": {"mics_hierarchical_params_gather": false})",
                 "mics_hierarchical_params_gather");
}

TEST_F(ReleasesTest, MembersThatAreEqualThenAreTwins) {
  version_ = v0_19_8;
  const auto found = members(R"({"zero_optimization": {"stage": 1, "round_robin_gradients":
      [false, true]}, "amp": {"enabled": false}, "steps_per_print": [5, 10],
      "train_micro_batch_size_per_gpu": [1]})");
  EXPECT_EQ(found.size(), 4U);
  EXPECT_THAT(found[1].reason, HasSubstr("runs exactly as"));
}

TEST_F(ReleasesTest, InAGapKeysThatMayHaveChangedAreWrittenOut) {
  const JobSpec read = job_for({0, 15, 0}, "{}");
  EXPECT_EQ(read.knobs().release(), v0_14_5);
  EXPECT_THAT(read.assumptions, Contains("DeepSpeed 0.15.0 has the keys and defaults of 0.14.5"));
  EXPECT_EQ(first_config({0, 15, 0}, "{}")["steps_per_print"], 10);
  EXPECT_FALSE(first_config(v0_14_5, "{}").contains("steps_per_print"));
  EXPECT_FALSE(first_config({0, 19, 2}, "{}").contains("steps_per_print"));
  EXPECT_EQ(first_config({0, 19, 2}, "{}")["gradient_clipping"], 0.0);
}

TEST_F(ReleasesTest, ReleasesThatAreNotKnownAreNotRefused) {
  EXPECT_EQ(job_for(v0_18_9, "{}").knobs().usual().gradient_clipping, 0);
  const JobSpec newer = job_for({0, 20, 0}, "{}");
  EXPECT_EQ(newer.knobs().release(), v0_19_8);
  EXPECT_THAT(newer.warnings, Contains(HasSubstr("DeepSpeed 0.20.0 is newer than all")));
  const JobSpec older = job_for({0, 13, 1}, "{}");
  EXPECT_EQ(older.knobs().release(), v0_14_5);
  EXPECT_THAT(older.warnings, Contains(HasSubstr("DeepSpeed 0.13.1 is older than all")));
}

TEST_F(ReleasesTest, TheDocumentNamesTheVersionAndTheCommandLineComesFirst) {
  version_.reset();
  const std::string text = R"({"dstune": {"deepspeed_version": "0.18.9+cafe"}})";
  EXPECT_EQ(job(text).deepspeed_version, v0_18_9);
  EXPECT_EQ(job(text).deepspeed_source, "dstune.deepspeed_version");
  EXPECT_EQ(job("{}").deepspeed_version, v0_19_8);
  EXPECT_EQ(
      job("{}").deepspeed_source,
      "the newest that dstune-mpi knows, since none is named; --deepspeed-version names another");
  version_ = v0_16_9;
  EXPECT_EQ(job(text).deepspeed_version, v0_16_9);
  EXPECT_EQ(deepspeed_text(job(text)), "Planned for DeepSpeed 0.16.9 (--deepspeed-version)");
}

TEST_F(ReleasesTest, AnInstallationIsReadWhereNobodyNamesOne) {
  version_.reset();
  PythonEnvironment python;
  python.root = folder_.string();
  python.variables = {{"VIRTUAL_ENV", "/venv"}};
  std::filesystem::create_directories(
      folder_ / "venv/lib/python3.11/site-packages/deepspeed-0.17.6.dist-info");
  overrides_.python = python;
  EXPECT_EQ(job("{}").deepspeed_version, (Version{0, 17, 6}));
  EXPECT_EQ(job("{}").deepspeed_source, "installed in /venv/lib/python3.11/site-packages");
  EXPECT_EQ(job(R"({"dstune": {"deepspeed_version": "0.18.9"}})").deepspeed_version, v0_18_9);
  write("train.py", "");
  // The interpreter of the workload comes before the environment that is active.
  std::filesystem::create_directories(
      folder_ / "other/lib/python3.11/site-packages/deepspeed-0.19.7.dist-info");
  EXPECT_EQ(job(R"({"dstune": {"workload": {"type": "deepspeed", "python": "/other",
                            "script": "train.py"}}})")
                .deepspeed_version,
            (Version{0, 19, 7}));
}

TEST(VersionTest, IsReadFromItsThreeNumbers) {
  EXPECT_EQ(parse_version("0.19.10"), (Version{0, 19, 10}));
  EXPECT_EQ(parse_version("0.19.8+1234abc"), v0_19_8);
  EXPECT_EQ(parse_version("0.19.9.dev0"), (Version{0, 19, 9}));
  EXPECT_EQ(parse_version("0.20"), (Version{0, 20, 0}));
  for (const char* text : {"", "new", "19", "0.x", "0.19.8 or so", "-1.2.3"})
    EXPECT_EQ(parse_version(text), std::nullopt) << text;
  EXPECT_GT((Version{0, 19, 10}), v0_19_8);
}

}  // namespace
}  // namespace dstune
