#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "config_cases.hpp"
#include "dstune/core/settings.hpp"

namespace dstune {
namespace {

std::string_view parent_of(std::string_view pointer) {
  return pointer.substr(0, pointer.rfind('/'));
}

/// {"a": {"b": value}} for "/a/b", with what DeepSpeed wants beside it.
json::Value config_with(std::string_view pointer, const json::Value& value) {
  json::Value config = json::Value::object();
  const auto set = [&config](const std::string& place, const json::Value& content) {
    config[json::Value::json_pointer(place)] = content;
  };
  for (const char* argument : {"foreach", "fused", "capturable", "differentiable", "maximize"})
    if (pointer == std::string("/optimizer/params/") + argument)
      set("/optimizer/params", {{"torch_adam", true}, {"weight_decay", 0}});
  for (const char* argument : {"momentum", "dampening", "nesterov"})
    if (pointer == std::string("/optimizer/params/") + argument) set("/optimizer/type", "SGD");
  if (pointer == "/optimizer/params/nesterov") set("/optimizer/params/momentum", 0.9);
  for (const char* argument : {"lr_decay", "initial_accumulator_value"})
    if (pointer == std::string("/optimizer/params/") + argument) set("/optimizer/type", "Adagrad");
  const std::size_t compression = std::string_view("/compression_training/").size();
  const std::size_t kind_end = pointer.find('/', compression);
  if (pointer.starts_with("/compression_training/") && kind_end != pointer.npos)
    for (const char* needed : {"/different_groups", "/shared_parameters"})
      set(std::string(pointer.substr(0, kind_end)) + needed, json::Value::object());
  set(std::string(pointer), value);
  return config;
}

/// The config without this key.
TrainingConfig read_without(json::Value config, std::string_view pointer) {
  const std::string key(pointer.substr(pointer.rfind('/') + 1));
  config[json::Value::json_pointer(std::string(parent_of(pointer)))].erase(key);
  return read_config(config.dump()).config;
}

bool takes_null(const Knob& knob) {
  return table_0_19_6().is_converted(knob) ? knob.fallback == "null" : knob.takes_null;
}
bool takes_auto(const Knob& knob) {
  return table_0_19_6().is_converted(knob) || knob.takes_auto;
}

bool is_element(const Knob& knob) {
  const Knob* const parent = table_0_19_6().find_knob(parent_of(knob.pointer));
  return parent != nullptr && parent->type == KnobType::list;
}

/// Of a section that is refused as a whole, or of one whose names are the user's.
bool is_out_of_reach(const Knob& knob) {
  return knob.pointer.starts_with("/zero_optimization/zenflow/") ||
         knob.pointer.starts_with("/sparse_attention/") ||
         knob.pointer.find("/*") != std::string_view::npos;
}

TEST(KnobsTest, RowsAreFoundByTheirPointer) {
  std::set<std::string_view> seen;
  for (const Knob& knob : table_0_19_6().knobs()) {
    if (is_out_of_reach(knob)) continue;
    EXPECT_TRUE(seen.insert(knob.pointer).second) << knob.pointer << " has two rows";
    EXPECT_EQ(table_0_19_6().find_knob(knob.pointer), &knob);
    EXPECT_FALSE(knob.help.empty()) << knob.pointer;
    EXPECT_NE(knob.stages, 0U) << knob.pointer;
  }
  EXPECT_EQ(table_0_19_6().find_knob("/zero_optimization/grad_hooks"), nullptr);
  EXPECT_GT(table_0_19_6().knobs().size(), 350U);
}

TEST(KnobsTest, SectionsStandBeforeTheirMembers) {
  std::set<std::string_view> seen = {""};
  for (const Knob& knob : table_0_19_6().knobs()) {
    EXPECT_TRUE(seen.contains(parent_of(knob.pointer))) << knob.pointer;
    seen.insert(knob.pointer);
  }
}

TEST(KnobsTest, DefaultsAreAcceptedAndChangeNothing) {
  for (const Knob& knob : table_0_19_6().knobs()) {
    ASSERT_TRUE(json::Value::accept(knob.fallback)) << knob.pointer;
    if (is_element(knob) || is_out_of_reach(knob) || knob.type == KnobType::object) continue;
    if (knob.fallback == "null" && !takes_null(knob)) continue;
    const json::Value config = config_with(knob.pointer, json::Value::parse(knob.fallback));
    const ReadConfig read = read_config(config.dump());
    EXPECT_TRUE(read.problems.empty()) << config << InputError(read.problems).what();
    EXPECT_EQ(read.config, read_without(config, knob.pointer)) << config;
  }
}

TEST(KnobsTest, NullAndAutoStandForTheDefaultWhereTheRowTakesThem) {
  for (const Knob& knob : table_0_19_6().knobs()) {
    if (is_element(knob) || is_out_of_reach(knob)) continue;
    const auto read = [&knob](const json::Value& value) {
      return read_config(config_with(knob.pointer, value).dump());
    };
    EXPECT_EQ(read(nullptr).problems.empty(), takes_null(knob)) << knob.pointer;
    const TrainingConfig without = read_without(config_with(knob.pointer, nullptr), knob.pointer);
    EXPECT_EQ(read(nullptr).config, without) << knob.pointer;
    // Any word is one to a row of texts.
    const bool is_word = knob.type == KnobType::text && knob.choices.empty();
    EXPECT_TRUE(is_word || read("auto").problems.empty() == takes_auto(knob)) << knob.pointer;
    EXPECT_EQ(read("auto").config, without) << knob.pointer;
  }
}

TEST(KnobsTest, WrongTypesAreRefusedWithTheirPlace) {
  for (const Knob& knob : table_0_19_6().knobs()) {
    if (is_element(knob) || is_out_of_reach(knob) || parent_of(knob.pointer).empty()) continue;
    const bool is_list = knob.type == KnobType::list;
    const json::Value wrong = is_list ? json::Value(5) : json::Value::array({1, 2, 3});
    const ReadConfig read = read_config(config_with(knob.pointer, wrong).dump());
    // DeepSpeed takes the truth of a flag, of which a rule may say something, too.
    ASSERT_GE(read.problems.size(), 1U) << knob.pointer;
    EXPECT_TRUE(read.problems.size() == 1 || knob.type == KnobType::boolean) << knob.pointer;
    EXPECT_EQ(read.problems[0].pointer, knob.pointer);
    EXPECT_EQ(read.problems[0].line, 1);
    EXPECT_NE(read.problems[0].message.find("expected"), std::string::npos);
  }
}

TEST(KnobsTest, ValuesBelowTheRangeAreRefused) {
  int checked = 0;
  for (const Knob& knob : table_0_19_6().knobs()) {
    if (is_element(knob) || is_out_of_reach(knob) || std::isinf(knob.low) ||
        parent_of(knob.pointer).empty())
      continue;
    ++checked;
    const double below = knob.low - 1;
    const std::string said = refusal(config_with(knob.pointer, below).dump());
    EXPECT_EQ(said.find(std::string(knob.pointer) + ": expected"), 0U) << said;
  }
  EXPECT_GT(checked, 30);
}

TEST(KnobsTest, EveryRefusedRowIsRefusedByName) {
  int checked = 0;
  for (const Knob& knob : table_0_19_6().knobs()) {
    if (knob.effect != KnobEffect::refused) continue;
    json::Value other = json::Value::object();
    const json::Value usual = json::Value::parse(knob.fallback);
    if (knob.type == KnobType::boolean) other = usual.is_null() || !usual.get<bool>();
    if (knob.type == KnobType::integer) other = usual.get<std::int64_t>() + 1;
    if (knob.type == KnobType::number) other = 1.0;
    if (knob.type == KnobType::text)
      other = std::string(knob.choices.substr(knob.choices.rfind('|') + 1));
    json::Value config = config_with(knob.pointer, other);
    if (!knob.acts_at(0)) config["zero_optimization"]["stage"] = 3;
    const std::string said = refusal(config.dump());
    EXPECT_NE(said.find(std::string(knob.pointer) + ": "), std::string::npos) << said;
    EXPECT_TRUE(said.find("not built") != std::string::npos ||
                (!knob.hint.empty() && said.find(knob.hint) != std::string::npos))
        << said;
    ++checked;
  }
  EXPECT_GT(checked, 25);
}

TEST(KnobsTest, KnowsWhereAKnobActs) {
  const Knob* const prefetch =
      table_0_19_6().find_knob("/zero_optimization/stage3_prefetch_bucket_size");
  EXPECT_TRUE(prefetch->acts_at(3));
  EXPECT_FALSE(prefetch->acts_at(2));
  const Knob* const multi_rank =
      table_0_19_6().find_knob("/zero_optimization/use_multi_rank_bucket_allreduce");
  EXPECT_FALSE(multi_rank->acts_at(0));
  EXPECT_TRUE(multi_rank->acts_at(1));
  EXPECT_FALSE(multi_rank->acts_at(3));
  EXPECT_EQ(table_0_19_6().find_knob("/zero_optimization/allgather_bucket_size")->effect,
            KnobEffect::inert);
}

}  // namespace
}  // namespace dstune
