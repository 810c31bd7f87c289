#include "dstune/space/search_space.hpp"

#include <chrono>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "space_fixture.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class SearchSpaceTest : public SpaceTest {};

TEST_F(SearchSpaceTest, TheLastKeyVariesFastest) {
  EXPECT_THAT(
      names(R"({"zero_optimization": {"stage": [1, 2]},
                        "train_micro_batch_size_per_gpu": [2, 4],
                        "gradient_accumulation_steps": [1, 3]})"),
      ElementsAre("z1_gas1_tmbspg2", "z1_gas3_tmbspg2", "z1_gas1_tmbspg4", "z1_gas3_tmbspg4",
                  "z2_gas1_tmbspg2", "z2_gas3_tmbspg2", "z2_gas1_tmbspg4", "z2_gas3_tmbspg4"));
  EXPECT_THAT(
      names(R"({"gradient_accumulation_steps": [1, 2],
                        "train_micro_batch_size_per_gpu": [4],
                        "zero_optimization": {"stage": [3, 0]}})"),
      ElementsAre("z3_gas1_tmbspg4", "z0_gas1_tmbspg4", "z3_gas2_tmbspg4", "z0_gas2_tmbspg4"));
}

TEST_F(SearchSpaceTest, GroupsAreSlowestAndRecomputeIsFastest) {
  EXPECT_THAT(names(R"({"dstune": {"resources": {"num_gpus": [2, 1]},
                           "activation_recompute": ["none", "block"]},
                "zero_optimization": {"stage": [1, 2]}, "train_micro_batch_size_per_gpu": [4]})"),
              ElementsAre("z1_gas1_tmbspg4_ng2_arnone", "z1_gas1_tmbspg4_ng2_arblock",
                          "z2_gas1_tmbspg4_ng2_arnone", "z2_gas1_tmbspg4_ng2_arblock",
                          "z1_gas1_tmbspg4_ng1_arnone", "z1_gas1_tmbspg4_ng1_arblock",
                          "z2_gas1_tmbspg4_ng1_arnone", "z2_gas1_tmbspg4_ng1_arblock"));
}

TEST_F(SearchSpaceTest, EveryStageWhereNoneIsWritten) {
  const auto all = {"z0_gas1_tmbspg4", "z1_gas1_tmbspg4", "z2_gas1_tmbspg4", "z3_gas1_tmbspg4"};
  EXPECT_THAT(names(R"({"train_micro_batch_size_per_gpu": [4]})"), testing::ElementsAreArray(all));
  EXPECT_THAT(names(R"({"train_micro_batch_size_per_gpu": [4],
                        "zero_optimization": {"stage": "all"}})"),
              testing::ElementsAreArray(all));
  EXPECT_THAT(names(R"({"train_micro_batch_size_per_gpu": [4], "zero_optimization": {}})"),
              ElementsAre("z0_gas1_tmbspg4"));
}

TEST_F(SearchSpaceTest, ConfigsAreTheUsersWithAllBatchKeys) {
  const auto found = members(R"({"dstune": {"resources": {"num_gpus": 2}}, "autotuning": {},
      "steps_per_print": "auto", "train_micro_batch_size_per_gpu": [4],
      "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
      "zero_optimization": {"stage": [1], "overlap_comm": "auto"}, "my_own": [1, 2]})");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].experiment.ds_config.dump(),
            R"({"steps_per_print":"auto","train_micro_batch_size_per_gpu":4,)"
            R"("optimizer":{"type":"AdamW","params":{"lr":"auto","betas":[0.9,0.95]}},)"
            R"("zero_optimization":{"stage":1,"overlap_comm":"auto"},"my_own":[1,2],)"
            R"("train_batch_size":8,"gradient_accumulation_steps":1,"gradient_clipping":1.0})");
  EXPECT_EQ(found[0].experiment.config.optimizer.beta2, 0.95);
  EXPECT_EQ(found[0].experiment.shape, (GroupShape{2, 1}));
  EXPECT_EQ(found[0].experiment.config.sequence_length, 1024);
}

TEST_F(SearchSpaceTest, OtherKnobsMakeCanonicalNames) {
  const auto found = names(R"({"dstune": {"variables": {"RBS": [5e7, 5e8]}},
      "zero_optimization": {"stage": 2, "reduce_bucket_size": "$RBS",
                            "overlap_comm": [true, false]},
      "train_micro_batch_size_per_gpu": [8]})");
  EXPECT_THAT(found,
              ElementsAre("z2_rbs5.0e+07_ocT_tmbspg8_gas1", "z2_rbs5.0e+07_ocF_tmbspg8_gas1",
                          "z2_rbs5.0e+08_ocT_tmbspg8_gas1", "z2_rbs5.0e+08_ocF_tmbspg8_gas1"));
}

TEST_F(SearchSpaceTest, AListOfListsIsCandidatesWhereTheSchemaHasAList) {
  const auto found = members(R"({"zero_optimization": {"stage": 1},
      "train_micro_batch_size_per_gpu": [8],
      "optimizer": {"type": "AdamW", "params": {"betas": [[0.9, 0.95], [0.9, 0.999]]}}})");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].experiment.config.optimizer.beta2, 0.95);
  EXPECT_EQ(found[1].experiment.config.optimizer.beta2, 0.999);
  EXPECT_EQ(found[0].experiment.name, "z1_tmbspg8_b-0.9--0.95-_gas1");
}

TEST_F(SearchSpaceTest, ListsInsideCandidatesExpandToo) {
  const auto found = members(R"({"train_micro_batch_size_per_gpu": [8],
      "zero_optimization": [{"stage": [0, 1]}, {"stage": 2, "overlap_comm": [true, false]}]})");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[1].experiment.ds_config["zero_optimization"].dump(), R"({"stage":1})");
  EXPECT_EQ(found[3].experiment.ds_config["zero_optimization"].dump(),
            R"({"stage":2,"overlap_comm":false})");
}

TEST_F(SearchSpaceTest, NamesAreUnique) {
  EXPECT_THAT(names(R"({"dstune": {"resources": {"num_gpus": [2, 1], "num_nodes": [1, 2]}},
                        "zero_optimization": {"stage": 1},
                        "train_micro_batch_size_per_gpu": [4]})"),
              ElementsAre("z1_gas1_tmbspg4_ng2", "z1_gas1_tmbspg4_ng4", "z1_gas1_tmbspg4_ng1",
                          "z1_gas1_tmbspg4_ng2_2"));
}

TEST_F(SearchSpaceTest, DuplicatesAndTwinsArePruned) {
  EXPECT_THAT(names(R"({"zero_optimization": {"stage": 1},
                        "train_micro_batch_size_per_gpu": [4, 8, 4]})"),
              ElementsAre("z1_gas1_tmbspg4", "z1_gas1_tmbspg8",
                          "z1_gas1_tmbspg4_2: runs exactly as z1_gas1_tmbspg4"));
  // Stage 0 reduces without ZeRO's overlap; logging changes nothing that is measured.
  EXPECT_THAT(names(R"({"zero_optimization": {"stage": [0, 1], "overlap_comm": [true, false]},
                "train_micro_batch_size_per_gpu": [4]})"),
              ElementsAre("z0_ocT_tmbspg4_gas1",
                          "z0_ocF_tmbspg4_gas1: runs exactly as z0_ocT_tmbspg4_gas1: "
                          "overlap_comm has no effect at stage 0",
                          "z1_ocT_tmbspg4_gas1", "z1_ocF_tmbspg4_gas1"));
  EXPECT_THAT(names(R"({"zero_optimization": {"stage": 1}, "steps_per_print": [10, 100],
                        "train_micro_batch_size_per_gpu": [4]})"),
              ElementsAre("z1_spp10_tmbspg4_gas1",
                          "z1_spp100_tmbspg4_gas1: runs exactly as z1_spp10_tmbspg4_gas1: "
                          "steps_per_print has no effect on a step"));
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
  }
  EXPECT_THAT(names(space("{}")),
              ElementsAre("z1_tmbspg4_ccF_gas1_arnone", "z1_tmbspg4_ccF_gas1_arblock",
                          testing::EndsWith("cpu_checkpointing makes no difference here"),
                          testing::EndsWith("cpu_checkpointing makes no difference here")));
}

// PyTorch's selective checkpointing fails there.
TEST_F(SearchSpaceTest, SelectiveRecomputeIsNotForStageThreeOfHuggingFace) {
  const auto reasons = [&](const std::string& target) {
    std::vector<std::string> result;
    const auto found = members(
        R"({"dstune": {"activation_recompute": ["selective", "block"], "target": )" + target +
        R"(}, "zero_optimization": {"stage": [2, 3]}, "train_micro_batch_size_per_gpu": [4]})");
    for (const auto& member : found) result.push_back(member.reason);
    return result;
  };
  EXPECT_THAT(reasons("{}"),
              ElementsAre("", "", HasSubstr("fails in PyTorch under ZeRO stage 3"), ""));
  EXPECT_THAT(reasons(R"("self")"), ElementsAre("", "", "", ""));
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

TEST_F(SearchSpaceTest, BatchLimitsPrune) {
  EXPECT_THAT(names(R"({"autotuning": {"max_train_batch_size": 8, "min_train_batch_size": 3},
                        "zero_optimization": {"stage": 1},
                        "train_micro_batch_size_per_gpu": [2, 4, 16]})"),
              ElementsAre("z1_gas1_tmbspg2: train_batch_size 2 is below min_train_batch_size 3",
                          "z1_gas1_tmbspg4",
                          "z1_gas1_tmbspg16: train_batch_size 16 is above max_train_batch_size 8"));
}

TEST_F(SearchSpaceTest, AnIntegerTrainBatchSizeIsKept) {
  const auto found = members(R"({"dstune": {"resources": {"num_gpus": 2}}, "train_batch_size": 32,
      "train_micro_batch_size_per_gpu": [4, 5, 16], "gradient_accumulation_steps": "auto",
      "zero_optimization": {"stage": 1}})");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].experiment.name, "z1_gas4_tmbspg4");
  EXPECT_EQ(found[0].experiment.ds_config["gradient_accumulation_steps"], 4);
  EXPECT_TRUE(found[1].is_pruned);
  EXPECT_EQ(found[1].reason,
            "train_batch_size 32 is not train_micro_batch_size_per_gpu 5 x "
            "gradient_accumulation_steps 3 x group size 2");
  EXPECT_EQ(found[2].experiment.config.accumulation_steps, 1);
  for (const auto& member : found) {
    EXPECT_EQ(member.experiment.ds_config["train_batch_size"], 32);
  }
}

TEST_F(SearchSpaceTest, ABatchSizeThatNothingGivesIsBadInput) {
  const auto found = problems(
      "{\"dstune\": {\"resources\": {\"num_gpus\": 2}},\n"
      "\"train_batch_size\": 33, \"train_micro_batch_size_per_gpu\": [4]}");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].pointer, "/train_batch_size");
  EXPECT_EQ(found[0].line, 2);
  EXPECT_THAT(problems(R"({"autotuning": {"max_train_batch_size": 1},
                           "train_micro_batch_size_per_gpu": [4]})"),
              ElementsAre(testing::Field(&Problem::pointer, "/autotuning/max_train_batch_size")));
}

TEST_F(SearchSpaceTest, EveryBadCandidateIsNamedWithItsPlace) {
  EXPECT_THAT(places("{\"zero_optimization\": {\"stage\": [0,\n4],\n\"reduce_bucket_size\":\n"
                     "[5e8, 4.7, -1]},\n\"train_micro_batch_size_per_gpu\": [2,\n0,\n\"x\"]}"),
              testing::UnorderedElementsAre(
                  "2 /zero_optimization/stage/1", "4 /zero_optimization/reduce_bucket_size/1",
                  "4 /zero_optimization/reduce_bucket_size/2",
                  "6 /train_micro_batch_size_per_gpu/1", "7 /train_micro_batch_size_per_gpu/2"));
}

TEST_F(SearchSpaceTest, BadFixedValuesAreNamedOnce) {
  EXPECT_THAT(places("{\"zero_optimization\": {\n\"overlap_com\": true,\n\"reduce_scatter\": 7},\n"
                     "\"gradient_accumulation_steps\": [1, 2]}"),
              testing::UnorderedElementsAre("2 /zero_optimization/overlap_com",
                                            "3 /zero_optimization/reduce_scatter"));
  EXPECT_THAT(places("{\"zero_optimization\": [{\"stage\": 1},\n{\"stage\": []}]}"),
              ElementsAre("2 /zero_optimization/1"));
  EXPECT_THAT(places("{\"zero_optimization\": \"all\"}"), ElementsAre("1 /zero_optimization"));
  EXPECT_THAT(places("{\"zero_optimization\": {\"stage\": []}}"),
              ElementsAre("1 /zero_optimization/stage"));
}

TEST_F(SearchSpaceTest, ACombinationThatDeepSpeedRefusesIsPruned) {
  const auto found = names(R"({"bf16": {"enabled": [false, true]}, "prescale_gradients": true,
      "train_micro_batch_size_per_gpu": [4], "zero_optimization": {"stage": [1, 2]}})");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0], "z1_eF_tmbspg4_gas1");
  EXPECT_THAT(found[1], StartsWith("z2_eF_tmbspg4_gas1: /prescale_gradients: "));
}

TEST_F(SearchSpaceTest, ACombinationWithoutAlternativeIsBadInput) {
  EXPECT_THAT(places(R"({"prescale_gradients": true, "zero_optimization": {"stage": [2, 2]}})"),
              ElementsAre("1 /prescale_gradients"));
}

TEST_F(SearchSpaceTest, KnobsThatAreNotMeasuredMakeTwinsAndAreNamedOnce) {
  const std::string text = R"({"autotuning": {"tuner_type": "gridsearch"},
      "train_micro_batch_size_per_gpu": [4], "steps_per_print": 10, "scheduler": {"type": "WarmupLR", "params": {}},
      "graph_harvesting": [false, true], "zero_optimization": {"stage": 3}})";
  EXPECT_THAT(names(text),
              ElementsAre("z3_tmbspg4_ghF_gas1",
                          "z3_tmbspg4_ghT_gas1: runs exactly as z3_tmbspg4_ghF_gas1: "
                          "graph_harvesting is not part of the step measured here yet"));
  EXPECT_THAT(job(text).warnings,
              ElementsAre(HasSubstr("not act on them yet: graph_harvesting"),
                          HasSubstr("effect on a step's time: steps_per_print, scheduler")));
}

TEST_F(SearchSpaceTest, KeysThatNobodyKnowsHereMakeNoTwinsWithTheEngine) {
  const std::string text = R"({"dstune": {"workload": {"type": "deepspeed"}, "model": "gpt2",
                 "training_command": "deepspeed train.py"},
      "train_micro_batch_size_per_gpu": [4], "gradient_accumulation_steps": [1],
      "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"},
                            "zenflow": {"topk_ratio": 0.1, "overlap_step": [false, true]}}})";
  const auto found = names(text);
  ASSERT_EQ(found.size(), 2U);
  for (const std::string& name : found) EXPECT_THAT(name, Not(HasSubstr("runs exactly as")));
}

TEST_F(SearchSpaceTest, LeafModulesThatTheModelLacksMakeTwins) {
  const std::string text = R"({"dstune": {"model": "gpt2"},
      "train_micro_batch_size_per_gpu": [4], "gradient_accumulation_steps": [1],
      "zero_optimization": {"stage": 3, "leaf_module": {
          "classes": [[], ["MixtralSparseMoeBlock"], ["GPT2Block"]]}}})";
  const auto found = names(text);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_THAT(found[1], HasSubstr("runs exactly as"));
  EXPECT_THAT(found[2], Not(HasSubstr(":")));
}

TEST_F(SearchSpaceTest, QuantizationIsSaidToChangeLosses) {
  const auto warnings = [this](const std::string& keys, int nodes) {
    default_ranks_ = 4;
    return job(R"({"dstune": {"resources": {"num_gpus": 2, "num_nodes": )" + std::to_string(nodes) +
               R"(}}, "zero_optimization": {"stage": 3, )" + keys + "}}")
        .warnings;
  };
  const auto has = [](const char* words) { return testing::Contains(HasSubstr(words)); };
  EXPECT_THAT(warnings(R"("zero_quantized_weights": [false, true])", 1), has("weights of 8 bits"));
  EXPECT_THAT(warnings(R"("zero_quantized_weights": false)", 1),
              testing::Not(has("its losses are others")));
  EXPECT_THAT(warnings(R"("zero_quantized_gradients": true)", 2), has("in 4 bits"));
  EXPECT_THAT(warnings(R"("zero_quantized_gradients": true)", 1),
              testing::Not(has("its losses are others")));
}

TEST_F(SearchSpaceTest, WhereDeepSpeedHangsIsSaid) {
  const auto warnings = [this](const std::string& sizes) {
    return job(R"({"zero_optimization": {"stage": 3, "mics_shard_size": )" + sizes + "}}").warnings;
  };
  default_ranks_ = 4;
  EXPECT_THAT(warnings("[-1, 2]"), testing::Contains(HasSubstr("DeepSpeed 0.19.6 itself hangs")));
  EXPECT_THAT(warnings("2"), testing::Contains(HasSubstr("mics_shard_size")));
  for (const char* sizes : {"[-1, 4]", "4", "0"})
    EXPECT_THAT(warnings(sizes), testing::Not(testing::Contains(HasSubstr("hangs")))) << sizes;
}

TEST_F(SearchSpaceTest, WhereDeepSpeedDoesNotAverageIsSaid) {
  const auto warnings = [this](const std::string& keys) {
    return job(R"({"data_types": {"grad_accum_dtype": "fp32"}, )" + keys + "}").warnings;
  };
  const auto says = testing::Contains(HasSubstr("each rank's own gradients"));
  const std::string offloaded = R"("offload_optimizer": {"device": "cpu"})";
  default_ranks_ = 2;
  EXPECT_THAT(warnings(R"("fp16": {"enabled": true}, "zero_optimization": {"stage": [1, 2]})"),
              says);
  EXPECT_THAT(warnings(R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 1, )" +
                       offloaded + "}"),
              says);
  for (const std::string keys :
       {R"("bf16": {"enabled": true}, "zero_optimization": {"stage": 1})",
        R"("fp16": {"enabled": true}, "zero_optimization": {"stage": [2, 3]})"})
    EXPECT_THAT(warnings(keys), testing::Not(says)) << keys;
  default_ranks_ = 1;
  EXPECT_THAT(warnings(R"("fp16": {"enabled": true}, "zero_optimization": {"stage": 1})"),
              testing::Not(says));
}

TEST_F(SearchSpaceTest, MembersWithWhatIsNotBuiltArePrunedBesideOthers) {
  const std::string text =
      "{\"autotuning\": {\"tuner_type\": \"gridsearch\"}, \"train_micro_batch_size_per_gpu\": "
      "[4],\n"
      "\"zero_optimization\": {\"stage\": [1, 3], \"offload_optimizer\": [null,\n{\"device\": "
      "\"none\", \"super_offload\": true}]}}";
  EXPECT_THAT(
      names(text),
      ElementsAre(
          "z1_tmbspg4_oo_None_gas1",
          StartsWith("z1_tmbspg4_oo_dnone_soT_gas1: runs exactly as z1_tmbspg4_oo_None_gas1"),
          "z3_tmbspg4_oo_None_gas1",
          testing::AllOf(StartsWith("z3_tmbspg4_oo_dnone_soT_gas1: "),
                         HasSubstr("super_offload = true is not built"))));
  // Where nothing else is left, it is the input that is wrong.
  EXPECT_THAT(places("{\"zero_optimization\": {\"stage\": 3,\n\"offload_optimizer\": [\n"
                     "{\"super_offload\": true}]}}"),
              ElementsAre("3 /zero_optimization/offload_optimizer/0/super_offload"));
  EXPECT_THAT(job("{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": "
                  "[null, {\"super_offload\": true}]}}")
                  .warnings,
              testing::Contains(StartsWith("/zero_optimization/offload_optimizer/1: members")));
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

TEST(ResolveBatchTest, FollowsDeepSpeed) {
  const auto resolved = [](std::optional<std::int64_t> total, std::optional<std::int64_t> micro,
                           std::optional<std::int64_t> steps, int group) {
    std::string why;
    const auto triple = resolve_batch(total, micro, steps, group, why);
    EXPECT_EQ(why.empty(), triple.has_value());
    return triple ? std::vector{triple->train_batch_size, triple->micro_batch,
                                triple->accumulation_steps}
                  : std::vector<std::int64_t>{};
  };
  constexpr auto none = std::nullopt;
  EXPECT_THAT(resolved(32, 4, none, 4), ElementsAre(32, 4, 2));
  EXPECT_THAT(resolved(32, none, 2, 4), ElementsAre(32, 4, 2));
  EXPECT_THAT(resolved(none, 4, 2, 4), ElementsAre(32, 4, 2));
  EXPECT_THAT(resolved(32, none, none, 4), ElementsAre(32, 8, 1));
  EXPECT_THAT(resolved(none, 4, none, 4), ElementsAre(16, 4, 1));
  EXPECT_THAT(resolved(none, none, 2, 4), ElementsAre());
  EXPECT_THAT(resolved(33, 17, 2, 2), ElementsAre());
  EXPECT_THAT(resolved(10, 3, none, 2), ElementsAre());
  EXPECT_THAT(resolved(33, none, none, 2), ElementsAre());
  EXPECT_THAT(resolved(30, none, 4, 4), ElementsAre());
  EXPECT_THAT(resolved(2, none, none, 4), ElementsAre());
  EXPECT_THAT(resolved(32, 16, none, 4), ElementsAre());
  EXPECT_THAT(resolved(32, 0, none, 4), ElementsAre());
}

}  // namespace
}  // namespace dstune
