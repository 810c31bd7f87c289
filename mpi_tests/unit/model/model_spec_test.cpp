#include "dstune/model/model_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "choices.hpp"
#include "dstune/base/error.hpp"
#include "golden.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

struct ReadResult {
  ModelSpec model;
  std::string problems;
};

ReadResult read_text(std::string_view text) {
  const json::Document document = json::Document::parse(text, "space.json");
  json::Problems problems;
  ReadResult result{read_model(document.node(), problems), ""};
  for (const Problem& problem : problems.all()) result.problems += problem.text() + "\n";
  return result;
}

TEST(ReadModelTest, SectionsAreModelsOrRefused) {
  test::expect_golden(DSTUNE_MODEL_DATA "/models.txt", [](const std::string& input) {
    return test::answers_to(input, [](const std::string& text) {
      const auto [model, problems] = read_text(text);
      return problems.empty() ? to_json(model).dump() : problems.substr(0, problems.size() - 1);
    });
  });
}

TEST(ReadModelTest, TakesEveryFamily) {
  using enum ModelFamily;
  for (const ModelFamily family :
       {gpt2, llama, mistral, qwen2, phi3, opt, gpt_neox, qwen3, bert, falcon}) {
    const auto [model, problems] =
        read_text(R"({"family": ")" + std::string(to_text(family)) +
                  R"(", "hidden_size": 64, "num_layers": 2, "num_heads": 4, "intermediate_size": 96,
           "vocab_size": 100})");
    EXPECT_EQ(problems, "");
    EXPECT_EQ(model.family, family);
    EXPECT_EQ(model.architecture, architecture_of(family));
    EXPECT_EQ(model_from_json(to_json(model)), model);
  }
}

TEST(PresetTest, EveryNameGivesAModelOfThatName) {
  for (const std::string_view name : preset_names()) EXPECT_EQ(preset(name).name, name);
}

TEST(PresetTest, UnknownNamesAreAnsweredWithTheKnownOnes) {
  EXPECT_THAT([] { preset("gpt5"); }, testing::ThrowsMessage<InputError>(HasSubstr("llama-7b")));
}

TEST(ModelJsonTest, SurvivesARoundTrip) {
  for (const std::string_view name : preset_names())
    EXPECT_EQ(model_from_json(to_json(preset(name))), preset(name));
}

TEST(ModelJsonTest, KeepsPartsThatAreNotTheFamilys) {
  ModelSpec model = preset("llama-7b");
  EXPECT_FALSE(to_json(model).contains("architecture"));
  model.attention_window = 77;
  model.full_layers = {0, 3};
  model.rope = {.kind = RopeKind::longrope,
                .original_positions = 64,
                .attention_factor = 1.5,
                .short_factor = {1, 2},
                .long_factor = {3, 4.5}};
  model.architecture.qkv_bias = true;
  model.architecture.block = BlockKind::parallel;
  model.architecture.rotary_fraction = 0.5;
  model.architecture.token_types = 3;
  EXPECT_EQ(to_json(model).at("architecture").size(), 4U);
  EXPECT_EQ(to_json(model).at("rope").size(), 5U);
  EXPECT_EQ(model_from_json(to_json(model)), model);
}

TEST(ModelJsonTest, RefusesWhatIsNoModel) {
  json::Value unknown = to_json(preset("gpt2"));
  unknown["architecture"]["block"] = "circular";
  EXPECT_THROW(model_from_json(unknown), LogicError);
  unknown = to_json(preset("gpt2"));
  unknown["family"] = "gpt5";
  EXPECT_THROW(model_from_json(unknown), LogicError);
  EXPECT_THROW(model_from_json(json::Value::object()), LogicError);
}

}  // namespace
}  // namespace dstune
