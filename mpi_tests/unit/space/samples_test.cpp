#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/space/search_space.hpp"

namespace dstune {
namespace {

JobSpec sample(const std::string& name, const std::optional<std::string>& model = {},
               int num_ranks = 4) {
  Overrides overrides;
  overrides.model = model;
  return read_job(std::string(DSTUNE_SPACES) + "/" + name, overrides, Machine{{num_ranks}},
                  num_ranks);
}

TEST(SamplesTest, QuickstartHasEveryStageAndGroup) {
  const auto job = sample("quickstart.json");
  EXPECT_EQ(job.model.hidden_size, 128);
  EXPECT_EQ(job.model.vocab_size, 8192);
  EXPECT_TRUE(job.warnings.empty());
  std::set<int> stages, groups;
  for (const auto& member : SearchSpace(job).members()) {
    EXPECT_FALSE(member.is_pruned) << member.reason;
    stages.insert(member.config.zero_stage);
    groups.insert(member.shape.size());
  }
  EXPECT_THAT(stages, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(groups, testing::ElementsAre(1, 2));
  EXPECT_EQ(SearchSpace(job).size(), 24U);
}

TEST(SamplesTest, QuickstartRunsOnTwoRanks) {
  EXPECT_EQ(SearchSpace(sample("quickstart.json", {}, 2)).size(), 24U);
}

TEST(SamplesTest, LlamaVariesTheReductions) {
  const auto job = sample("llama.json");
  EXPECT_EQ(job.model.family, ModelFamily::llama);
  const auto members = SearchSpace(job).members();
  EXPECT_EQ(members.size(), 48U * 7) << "micro-batches from 2 to 8";
  for (const auto& member : members) EXPECT_FALSE(member.is_pruned) << member.reason;
}

TEST(SamplesTest, AnExistingConfigWorksAsItIs) {
  const auto job = sample("deepspeed-existing.json", "gpt2");
  const SearchSpace space(job);
  const auto members = space.members();
  EXPECT_EQ(members.size(), 64U) << "micro-batches from 1 to 1024";
  for (const auto& member : members) {
    EXPECT_FALSE(member.is_pruned) << member.reason;
    EXPECT_EQ(space.experiment(member).ds_config["optimizer"]["params"]["lr"], "auto");
    EXPECT_FALSE(space.experiment(member).ds_config.contains("autotuning"));
  }
}

}  // namespace
}  // namespace dstune
