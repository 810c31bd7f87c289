/// The tables of keys against every key that releases of DeepSpeed read
/// (data/deepspeed_<version>_schema.json).

#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config_cases.hpp"

namespace dstune {
namespace {

class DeepSpeedSchemaTest : public testing::TestWithParam<Version> {
 protected:
  static json::Value schema() {
    std::ifstream file(
        fmt::format(DSTUNE_CORE_DATA "/deepspeed_{}_schema.json", to_text(GetParam())));
    return json::Value::parse(file);
  }
  static json::Value keys_of_deepspeed() { return schema().at("keys"); }
  static const KnobTable& table() { return knob_table(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Releases, DeepSpeedSchemaTest, testing::ValuesIn(recorded_releases),
                         [](const auto& release) { return name_of(release.param); });

std::string_view type_word(KnobType type) {
  constexpr std::array words{"boolean", "integer", "number", "text", "object", "list"};
  return words.at(static_cast<std::size_t>(type));
}

/// Sections whose switch is refused by name, or that are refused as a whole: what else they hold
/// can not matter.
bool is_in_refused_section(std::string_view pointer) {
  return pointer.starts_with("/zero_optimization/zenflow/") ||
         pointer.starts_with("/sparse_attention/");
}

double bound(const json::Value& key, const char* inclusive, const char* exclusive, double step,
             double otherwise) {
  if (key.contains(inclusive)) return key.at(inclusive).get<double>();
  if (key.contains(exclusive)) return key.at(exclusive).get<double>() + step;
  return otherwise;
}

TEST_P(DeepSpeedSchemaTest, EveryKeyOfDeepSpeedHasARow) {
  int rows = 0;
  const json::Value keys = keys_of_deepspeed();
  for (const auto& [pointer, key] : keys.items()) {
    if (is_in_refused_section(pointer)) continue;
    // Before 0.17.6 it is asked for where a mesh is made alone.
    if (pointer == "/sequence_parallel_size" && GetParam() < Version{0, 17, 6}) continue;
    EXPECT_NE(table().find_knob(pointer), nullptr) << pointer << " " << key;
    ++rows;
  }
  EXPECT_GT(rows, 310);
}

TEST_P(DeepSpeedSchemaTest, EveryRowIsAKeyOfDeepSpeed) {
  // Read in ways that the walk does not see: inside the section that they switch on, taken out by
  // the engine, or elements of a list.
  const std::set<std::string_view> unseen = {
      "/data_efficiency/data_sampling/curriculum_learning/curriculum_metrics",
      "/data_efficiency/data_sampling/dynamic_batching/max_tokens",
      "/compression_training/head_pruning/shared_parameters/num_heads",
      "/expert_parallel/enabled",
      "/quantize_training",
      "/eigenvalue",
      "/optimizer/params/betas/0",
      "/optimizer/params/betas/1",
      "/optimizer/params/adam_w_mode",
      "/optimizer/params/torch_adam",
      "/optimizer/params/fp32_optimizer_states",
      "/scheduler/params/last_batch_iteration",
      "/allgather_size",
      "/scheduler/params"};
  const json::Value keys = keys_of_deepspeed();
  for (const Knob& knob : table().knobs())
    EXPECT_TRUE(keys.contains(std::string(knob.pointer)) || unseen.contains(knob.pointer) ||
                is_in_refused_section(knob.pointer) || knob.pointer.find("/*") != knob.pointer.npos)
        << knob.pointer;
}

TEST_P(DeepSpeedSchemaTest, TypesDefaultsAndRangesAreDeepSpeeds) {
  // No default in DeepSpeed, which asks whether the key is there: one rank, the program's own
  // optimizer, no fusion.
  const std::set<std::string_view> other_default = {"/sequence_parallel_size", "/optimizer/type",
                                                    "/optimizer/legacy_fusion"};
  constexpr double infinity = std::numeric_limits<double>::infinity();
  int defaults = 0;
  const json::Value keys = keys_of_deepspeed();
  for (const auto& [pointer, key] : keys.items()) {
    const Knob* const knob = table().find_knob(pointer);
    if (knob == nullptr || is_in_refused_section(pointer)) continue;  // the first test's
    // A text's default of a list, and numbers that are a dictionary's until 0.17.6.
    const bool is_of_dictionary =
        pointer == "/fp16/loss_scale" || pointer == "/fp16/min_loss_scale";
    if (pointer == "/data_types/keep_in_fp32_modules" ||
        (is_of_dictionary && !table().find_knob("/fp16")->model))
      continue;
    const std::string type = key.at("type");
    EXPECT_TRUE(type == type_word(knob->type) || type == "any") << pointer << " " << key;
    if (knob->type != KnobType::object && !other_default.contains(pointer)) {
      EXPECT_EQ(json::Value::parse(knob->fallback), key.at("default")) << pointer;
      ++defaults;
    }
    if (!key.contains("strict")) continue;
    EXPECT_TRUE(table().is_converted(*knob)) << pointer;
    // A validator of its own makes the default of null.
    const bool takes_null = key.contains("nullable") || pointer == "/zero_optimization/leaf_module";
    EXPECT_EQ(takes_null, knob->fallback == "null") << pointer << " " << key;
    if (pointer == "/zero_optimization/stage" || pointer == "/fp16/loss_scale") continue;
    EXPECT_EQ(knob->low, bound(key, "ge", "gt", 1, -infinity)) << pointer;
    EXPECT_EQ(knob->high, bound(key, "le", "lt", -1, infinity)) << pointer;
  }
  EXPECT_GT(defaults, 240);
}

TEST_P(DeepSpeedSchemaTest, WhatIsRefusedByItsPresenceIsKnownAsRemoved) {
  const json::Value whole = schema();
  std::set<std::string> removed;
  if (whole.contains("removed"))
    for (const auto& [pointer, words] : whole.at("removed").items()) removed.insert(pointer);
  std::set<std::string> known;
  for (const Knob& knob : every_knob().knobs())
    if (table().was_removed(knob.pointer) && !table().was_removed(parent_of(knob.pointer)) &&
        knob.pointer != "/aio/thread_count")
      known.emplace(knob.pointer);
  EXPECT_EQ(known, removed);
}

TEST_P(DeepSpeedSchemaTest, ModelsAreTheSectionsThatAreReadByPydantic) {
  std::set<std::string> models;
  const json::Value keys = keys_of_deepspeed();
  for (const auto& [pointer, key] : keys.items())
    if (key.contains("strict")) models.insert(pointer.substr(0, pointer.rfind('/')));

  for (const Knob& knob : table().knobs()) {
    const bool is_model = models.contains(std::string(knob.pointer));
    EXPECT_EQ(knob.model, is_model) << knob.pointer;
  }
}

}  // namespace
}  // namespace dstune
