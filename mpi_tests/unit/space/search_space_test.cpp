#include "dstune/space/search_space.hpp"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SearchSpaceTest : public SpaceTest {};

TEST_F(SearchSpaceTest, ExperimentsHaveTheGroupAndTheCandidates) {
  const auto found = members(R"({"dstune": {"resources": {"num_gpus": 2}},
      "train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": 1},
      "optimizer": {"params": {"betas": [[0.9, 0.95], [0.9, 0.99]]}}})");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].experiment.config.optimizer.beta2, 0.95);
  EXPECT_EQ(found[1].experiment.config.optimizer.beta2, 0.99);
  EXPECT_EQ(found[0].experiment.shape, (GroupShape{2, 1}));
  EXPECT_EQ(found[0].experiment.config.sequence_length, 1024);
}

TEST_F(SearchSpaceTest, TellsWhichKeysAreSearched) {
  const auto searched = [&](const std::string& document) {
    const JobSpec read = job(document);
    return SearchSpace(read).searched();
  };
  EXPECT_THAT(searched(R"({"train_micro_batch_size_per_gpu": [4, 8], "train_batch_size": 16,
                           "bf16": {"enabled": [true]}, "zero_optimization": {"stage": [1, 2]}})"),
              ElementsAre("/train_micro_batch_size_per_gpu", "/zero_optimization/stage"));
  EXPECT_THAT(searched(R"({"train_micro_batch_size_per_gpu": "auto",
                           "zero_optimization": {"stage": 1}})"),
              ElementsAre("/train_micro_batch_size_per_gpu"));
  EXPECT_THAT(searched(R"({"train_micro_batch_size_per_gpu": [4], "autotuning": {"fast": false},
                           "zero_optimization": {"stage": [0, 1], "overlap_comm": [true, false]}})"),
              ElementsAre("/zero_optimization/stage", "/zero_optimization/overlap_comm",
                          "/zero_optimization/reduce_bucket_size",
                          "/zero_optimization/allgather_bucket_size"));
}

TEST_F(SearchSpaceTest, CountsMembersWithoutTheSizesThatNobodyWrote) {
  const auto sizes = [&](const std::string& document) {
    const JobSpec read = job(document);
    const SearchSpace space(read);
    return std::pair(space.size_without_search(), space.size());
  };
  const auto [fewer, all] = sizes(R"({"train_micro_batch_size_per_gpu": 4,
                                      "zero_optimization": {"stage": [0, 1, 2]}})");
  EXPECT_EQ(fewer, 3);
  EXPECT_GT(all, 3);
  EXPECT_EQ(sizes(R"({"train_micro_batch_size_per_gpu": [4, 8],
                      "zero_optimization": {"stage": [0, 1, 2]}})"),
            std::pair(std::uint64_t{6}, std::uint64_t{6}));
}

// Only deepspeed.checkpointing reads the section, and only where blocks are computed again.
TEST_F(SearchSpaceTest, CheckpointsGoToTheHostWhereTheTargetAsks) {
  const auto space = [](const char* target) {
    return R"({"dstune": {"activation_recompute": ["none", "block"], "target": )" +
           std::string(target) + R"(},
               "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": [4],
               "activation_checkpointing": {"cpu_checkpointing": [false, true]}})";
  };
  for (const char* target : {R"({"checkpointing": "deepspeed"})", R"("self")"}) {
    const auto found = members(space(target));
    ASSERT_EQ(found.size(), 4U);
    for (const std::size_t index : {0U, 1U, 2U})
      EXPECT_FALSE(found[index].experiment.config.cpu_checkpointing) << index;
    EXPECT_TRUE(found[3].experiment.config.cpu_checkpointing);
    EXPECT_FALSE(found[3].is_pruned);
    EXPECT_EQ(found[2].prune_kind, PruneKind::twin) << found[2].reason;
  }
}

TEST_F(SearchSpaceTest, SearchedSizesGrowByAnEighthAtMost) {
  const auto sizes = [&](const std::string& document) {
    std::vector<std::int64_t> all;
    for (const auto& member : members(document)) all.push_back(member.config.micro_batch);
    return all;
  };
  EXPECT_THAT(sizes(R"({"autotuning": {"max_train_micro_batch_size_per_gpu": 21},
                        "zero_optimization": {"stage": 1}})"),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 21));
  EXPECT_THAT(sizes(R"({"autotuning": {"max_train_batch_size": 30},
                        "dstune": {"resources": {"num_gpus": 2}},
                        "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2,
                        "zero_optimization": {"stage": 1}})"),
              ElementsAre(3, 4, 5, 6, 7));
  const auto all = sizes(R"({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {}})");
  EXPECT_EQ(all.size(), 64U);
  EXPECT_EQ(all.back(), 1024);
}

TEST_F(SearchSpaceTest, SearchedSizesAreChains) {
  const auto found = members(R"({"autotuning": {"max_train_micro_batch_size_per_gpu": 2},
      "zero_optimization": {"stage": [1, 2]}, "train_micro_batch_size_per_gpu": "auto"})");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].micro_batch_chain, found[1].micro_batch_chain);
  EXPECT_EQ(found[2].micro_batch_chain, found[3].micro_batch_chain);
  EXPECT_NE(found[0].micro_batch_chain, found[2].micro_batch_chain);
  for (const auto& member : members(R"({"train_micro_batch_size_per_gpu": [1, 2]})")) {
    EXPECT_FALSE(member.micro_batch_chain);
  }
}

TEST_F(SearchSpaceTest, VisitsStopWhereTheVisitorOrTheLimitSays) {
  const auto read = job(R"({"train_micro_batch_size_per_gpu": [1, 2, 3, 4]})");
  const SearchSpace space(read);
  EXPECT_EQ(space.size(), 16U);
  int visited = 0;
  space.visit(5, [&](Member&&) { return ++visited > 0; });
  EXPECT_EQ(visited, 5);
  visited = 0;
  space.visit(space.size(), [&](Member&&) { return ++visited < 3; });
  EXPECT_EQ(visited, 3);
}

TEST_F(SearchSpaceTest, LargeSpacesCostNothingBeforeTheyAreLookedAt) {
  std::string sizes;
  for (int size = 1; size <= 1000; ++size) {
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  }
  const auto read = job("{\"train_micro_batch_size_per_gpu\": [" + sizes +
                        "], \"gradient_accumulation_steps\": [" + sizes + "]}");
  const SearchSpace space(read);
  EXPECT_EQ(space.size(), 4'000'000U);
  std::set<std::string> names;
  space.visit(100, [&](Member&& member) { return names.insert(member.name).second; });
  EXPECT_EQ(names.size(), 100U);
}

TEST_F(SearchSpaceTest, SpacesThatCanNotBeNumberedAreBadInput) {
  std::string sizes = "[1";
  for (int size = 2; size <= 2000; ++size) sizes += ", " + std::to_string(size);
  sizes += "]";
  std::string text = "{\"train_micro_batch_size_per_gpu\": " + sizes +
                     ", \"gradient_accumulation_steps\": " + sizes +
                     ", \"steps_per_print\": " + sizes + ", \"gradient_clipping\": " + sizes +
                     ", \"zero_optimization\": {\"reduce_bucket_size\": " + sizes +
                     ", \"allgather_bucket_size\": [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]" +
                     "}, \"aio\": {\"block_size\": " + sizes + "}}";
  const auto found = problems(text);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].message, HasSubstr("more than can be numbered"));
}

}  // namespace
}  // namespace dstune
