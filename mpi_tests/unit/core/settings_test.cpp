#include "dstune/core/settings.hpp"

#include <gtest/gtest.h>

#include "config_cases.hpp"

namespace dstune {
namespace {

std::vector<Setting> read(const std::string& text, const std::string& pointer = "") {
  const auto document = json::Document::parse(text, "space.json");
  json::Problems problems;
  auto settings =
      read_settings(table_0_19_6(), json::Node(document, document.root(), pointer), problems);
  problems.check();
  return settings;
}

Settings settings_of(const std::string& text) {
  Settings settings(table_0_19_6());
  settings.apply(read(text));
  return settings;
}

TEST(SettingsTest, StartAtTheDefaults) {
  const Settings settings(table_0_19_6());
  EXPECT_EQ(settings.zero_stage(), 0);
  EXPECT_TRUE(settings.is_on("/zero_optimization/reduce_scatter"));
  EXPECT_FALSE(settings.is_there("/zero_optimization/reduce_scatter"));
  EXPECT_EQ(training_config(settings), TrainingConfig());
  EXPECT_TRUE(violations_of(settings).empty());
}

TEST(SettingsTest, TellWhatIsGivenFromWhatIsAutomatic) {
  const Settings settings = settings_of(
      R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto", "overlap_comm": null}})");
  EXPECT_TRUE(settings.is_given("/zero_optimization/stage"));
  EXPECT_FALSE(settings.is_given("/zero_optimization/reduce_bucket_size"));
  EXPECT_TRUE(settings.is_there("/zero_optimization/reduce_bucket_size"));
  EXPECT_EQ(settings.number("/zero_optimization/reduce_bucket_size"), 5e8);
  EXPECT_FALSE(settings.is_there("/zero_optimization/overlap_comm"));
}

TEST(SettingsTest, ASectionAssignsEverythingBelowIt) {
  Settings settings = settings_of(R"({"zero_optimization": {"stage": 3, "overlap_comm": false}})");
  const std::string section = "/zero_optimization";
  settings.apply(read(R"({"reduce_scatter": false})", section));
  EXPECT_EQ(settings.zero_stage(), 0);
  EXPECT_FALSE(settings.is_there(section + "/overlap_comm"));
  EXPECT_FALSE(settings.is_on(section + "/reduce_scatter"));
  settings.apply(read("{}", section));
  EXPECT_EQ(training_config(settings), TrainingConfig());
}

TEST(SettingsTest, OneValueAssignsItsRowAlone) {
  const auto changes = read("[0.8, 0.9]", "/optimizer/params/betas");
  ASSERT_EQ(changes.size(), 3U);
  Settings settings(table_0_19_6());
  settings.apply(changes);
  EXPECT_EQ(training_config(settings).optimizer.beta1, 0.8);
  EXPECT_EQ(read("true", "/zero_optimization/overlap_comm").size(), 1U);
  EXPECT_TRUE(read("5", "/no/such/key").empty());
}

TEST(SettingsTest, ARefusedKnobIsObjectedToWhereItActs) {
  const std::string offload = R"("offload_optimizer": {"device": "cpu", "super_offload": true}}})";
  EXPECT_TRUE(
      violations_of(settings_of(R"({"zero_optimization": {"stage": 2, )" + offload)).empty());
  const auto found = violations_of(settings_of(R"({"zero_optimization": {"stage": 3, )" + offload));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().pointer, "/zero_optimization/offload_optimizer/super_offload");
}

}  // namespace
}  // namespace dstune
