#include "searched_keys.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/report/results.hpp"
#include "samples.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Members with these configs.
test::Draft draft_with(const std::vector<json::Value>& configs) {
  test::Draft draft;
  for (const json::Value& config : configs) {
    draft.rows.push_back(
        test::planned_row("m" + std::to_string(draft.rows.size()), PlanStatus::planned, ""));
    draft.rows.back().planned.experiment.ds_config = config;
  }
  return draft;
}

std::vector<std::string> labels_of(const SearchedKeys& found) {
  std::vector<std::string> labels;
  for (const SearchedKey& key : found.keys)
    labels.push_back(key.label + (key.is_derived ? " (derived)" : ""));
  return labels;
}

const std::vector<json::Value> configs = {
    {{"train_batch_size", 4},
     {"bf16", {{"enabled", true}}},
     {"autotuning", {{"enabled", true}}},
     {"train_micro_batch_size_per_gpu", 1},
     {"zero_optimization", {{"stage", 0}}}},
    {{"train_batch_size", 8},
     {"bf16", {{"enabled", true}}},
     {"autotuning", {{"enabled", true}}},
     {"train_micro_batch_size_per_gpu", 2},
     {"zero_optimization", {{"stage", 3}, {"a/b", "x, y"}, {"offload", {{"device", "cpu"}}}}}}};

TEST(SearchedKeys, AreTheLeavesThatDiffer) {
  const SearchedKeys found = searched_keys(test::Concluded(draft_with(configs)));
  EXPECT_THAT(labels_of(found),
              ElementsAre("train_micro_batch_size_per_gpu", "zero_optimization.stage",
                          "zero_optimization.a/b", "zero_optimization.offload.device",
                          "train_batch_size (derived)"));
  EXPECT_EQ(found.keys[2].pointer, "/zero_optimization/a~1b");
  EXPECT_EQ(found.keys[1].values, (std::vector<json::Value>{0, 3}));
  EXPECT_THAT(found.keys[1].value_of, ElementsAre(0, 1));
  EXPECT_THAT(found.keys[2].value_of, ElementsAre(SearchedKey::absent, 0));
  EXPECT_EQ(found.keys[2].find(0), nullptr);
  EXPECT_EQ(*found.keys[2].find(1), "x, y");
  EXPECT_EQ(found.common_config, (json::Value{{"bf16", {{"enabled", true}}}}));
}

TEST(SearchedKeys, ComeInTheOrderOfTheSpaceAndOthersAreDerived) {
  test::Draft draft = draft_with(configs);
  draft.rows[1].planned.experiment.config.recompute = Recompute::none;
  draft.searched = {"/zero_optimization/stage", "/zero_optimization/offload", "/train_batch_size"};
  EXPECT_THAT(
      labels_of(searched_keys(test::Concluded(draft))),
      ElementsAre("zero_optimization.stage", "zero_optimization.offload.device", "train_batch_size",
                  "recompute", "train_micro_batch_size_per_gpu (derived)",
                  "zero_optimization.a/b (derived)"));
}

TEST(SearchedKeys, ManyValuesAreToldApart) {
  std::vector<json::Value> many;
  for (int round = 0; round < 2; ++round)
    for (int value = 0; value < 50; ++value) many.push_back({{"key", value}});
  const SearchedKeys found = searched_keys(test::Concluded(draft_with(many)));
  ASSERT_EQ(found.keys.size(), 1U);
  EXPECT_EQ(found.keys[0].values.size(), 50U);
  for (int member = 0; member < 100; ++member)
    EXPECT_EQ(found.keys[0].value_of[static_cast<std::size_t>(member)], member % 50);
}

TEST(SearchedKeys, AValueThatIsAnObjectElsewhereIsAKeyOfItsOwn) {
  const SearchedKeys found = searched_keys(
      test::Concluded(draft_with({{{"offload", nullptr}}, {{"offload", {{"device", "cpu"}}}}})));
  EXPECT_THAT(labels_of(found), ElementsAre("offload", "offload.device"));
  EXPECT_TRUE(found.keys[0].find(0)->is_null());
  EXPECT_EQ(found.keys[0].find(1), nullptr);
  EXPECT_EQ(found.common_config, json::Value::object());
}

TEST(SearchedKeys, NoMembersHaveNone) {
  const SearchedKeys found = searched_keys({});
  EXPECT_TRUE(found.keys.empty());
  EXPECT_EQ(found.common_config, json::Value::object());
}

TEST(SearchedKeys, HaveColumnsAtTheEndOfTheTable) {
  test::Draft draft = draft_with(configs);
  draft.rows[1].planned.experiment.config.sequence_length = 77;
  const std::string table = results_csv(test::Concluded(draft));
  EXPECT_THAT(table,
              HasSubstr(",pruned_because,train_micro_batch_size_per_gpu,zero_optimization.stage,"
                        "zero_optimization.a/b,zero_optimization.offload.device,"
                        "sequence_length\r\n"))
      << "the batch has a column already";
  EXPECT_THAT(table, HasSubstr(",1,0,,,1024\r\n"));
  EXPECT_THAT(table, HasSubstr(",2,3,\"x, y\",cpu,77\r\n"));
}

}  // namespace
}  // namespace dstune
