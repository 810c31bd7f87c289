#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Spaces with DeepSpeed's default grids.
class FullSpaceTest : public SpaceTest {
 protected:
  FullSpaceTest() { overrides_.full = true; }
};

TEST_F(FullSpaceTest, EachStageHasItsDefaultGrid) {
  std::map<int, int> of_stage;
  for (const auto& member : members(R"({"train_micro_batch_size_per_gpu": [1, 2]})"))
    ++of_stage[member.config.zero_stage];
  // DeepSpeed's sizes for two micro-batches.
  EXPECT_EQ(of_stage, (std::map<int, int>{{0, 2}, {1, 18}, {2, 144}, {3, 288}}));
}

TEST_F(FullSpaceTest, NamesAreDeepSpeeds) {
  const auto of_stage = [&](int stage) {
    return names(R"({"train_micro_batch_size_per_gpu": [56], "gradient_accumulation_steps": 2,
                     "zero_optimization": {"stage": )" +
                 std::to_string(stage) + "}}");
  };
  EXPECT_THAT(of_stage(0), ElementsAre("z0_gas2_tmbspg56"));
  EXPECT_THAT(of_stage(1), testing::Contains(HasSubstr("z1_rbs5.0e+08_abs1.0e+09_tmbspg56_gas2")));
  EXPECT_THAT(of_stage(2),
              testing::Contains(HasSubstr("z2_abs1.0e+09_ocT_rsF_rbs5.0e+07_cgT_tmbspg56_gas2")));
  EXPECT_THAT(
      of_stage(3),
      testing::Contains(HasSubstr("z3_apF_abs1.0e+09_ocT_rsF_rbs5.0e+07_cgT_tmbspg56_gas2")));
}

TEST_F(FullSpaceTest, TheDocumentLiesOverTheTemplate) {
  const auto found = members(R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": [1],
      "zero_optimization": {"stage": [1, 1, 2], "overlap_comm": "auto", "reduce_scatter": true,
                            "allgather_bucket_size": [2e8, 4e8], "contiguous_gradients": true}})");
  // Stage 1: 3 reduce buckets, 2 gather buckets; stage 2 the same, everything else is written.
  ASSERT_EQ(found.size(), 12U);
  EXPECT_EQ(found[6].experiment.ds_config["zero_optimization"].dump(),
            R"({"stage":2,"allgather_partitions":true,"allgather_bucket_size":200000000.0,)"
            R"("overlap_comm":"auto","reduce_scatter":true,"reduce_bucket_size":50000000,)"
            R"("contiguous_gradients":true})");
  EXPECT_EQ(found[0].config.zero_stage, 1);
  EXPECT_EQ(found[0].config.precision, Precision::bf16);
}

TEST_F(FullSpaceTest, Stage3FollowsFromTheHiddenSize) {
  overrides_.model = "gpt2-medium";
  const auto found = members(
      R"({"train_micro_batch_size_per_gpu": [1], "zero_optimization": {"stage": 3, "overlap_comm": true,
          "reduce_scatter": true, "allgather_partitions": true, "contiguous_gradients": true,
          "reduce_bucket_size": "auto", "allgather_bucket_size": 5e8}})");
  ASSERT_EQ(found.size(), 1U);
  const auto& zero = found[0].experiment.ds_config["zero_optimization"];
  EXPECT_EQ(zero["stage3_prefetch_bucket_size"], 943718);  // 0.9 · 1024², rounded
  EXPECT_EQ(zero["stage3_param_persistence_threshold"], 10240);
  EXPECT_EQ(zero["sub_group_size"], 1'000'000'000'000);
  EXPECT_EQ(zero["reduce_bucket_size"], "auto");
}

TEST_F(FullSpaceTest, TemplatesMayComeFromFiles) {
  const auto path = write("mine.json",
                          R"({"zero_optimization": {"reduce_bucket_size": [1e6, 2e6],
                                                    "overlap_comm": true}})");
  auto read = job(R"({"train_micro_batch_size_per_gpu": [1], "zero_optimization": {"stage": 2}})");
  read.templates[2] = path;
  const SearchSpace space(read);
  const auto found = space.members();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(space.experiment(found[1]).ds_config["zero_optimization"].dump(),
            R"({"reduce_bucket_size":2000000.0,"overlap_comm":true,"stage":2})");

  read.templates[2] = write("bad.json", "{\"zero_optimization\": {\n\"reduce_bucket_size\": -5}}");
  EXPECT_THAT([&] { const SearchSpace refused(read); },
              testing::ThrowsMessage<InputError>(HasSubstr("bad.json:2: /zero_optimization")));
}

}  // namespace
}  // namespace dstune
