#include "dstune/model/model_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"

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

TEST(ReadModelTest, FillsInWhatTheFamilyImplies) {
  const auto [model, problems] = read_text(
      R"({"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 100})");
  EXPECT_EQ(problems, "");
  EXPECT_EQ(model.intermediate_size, 256);
  EXPECT_EQ(model.num_kv_heads, 4);
  EXPECT_EQ(model.head_size, 16);
  EXPECT_EQ(model.max_positions, 1024);
  EXPECT_TRUE(model.tie_embeddings);
}

TEST(ReadModelTest, TakesEveryKey) {
  const auto [model, problems] = read_text(
      R"({"family": "llama", "hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
          "intermediate_size": 96, "vocab_size": 100, "tie_embeddings": true, "max_positions": 77})");
  EXPECT_EQ(problems, "");
  EXPECT_EQ(model.family, ModelFamily::llama);
  EXPECT_EQ(model.num_kv_heads, 2);
  EXPECT_EQ(model.intermediate_size, 96);
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_EQ(model.max_positions, 77);
}

TEST(ReadModelTest, NamesWhatIsMissingOrUnknown) {
  const std::string problems = read_text(R"({"family": "llama", "hidden_siz": 64})").problems;
  EXPECT_THAT(problems, HasSubstr("hidden_siz"));
  EXPECT_THAT(problems, HasSubstr("hidden_size is missing"));
  EXPECT_THAT(problems, HasSubstr("intermediate_size is missing"));
  EXPECT_THAT(problems, HasSubstr("vocab_size is missing"));
  EXPECT_THAT(read_text(R"({"family": "t5"})").problems, HasSubstr("\"t5\""));
}

TEST(ReadModelTest, TakesEveryFamily) {
  using enum ModelFamily;
  for (const ModelFamily family : {gpt2, llama, mistral, qwen2, phi3, opt, gpt_neox, qwen3, bert}) {
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

TEST(ReadModelTest, RefusesGroupedHeadsInGpt2) {
  EXPECT_THAT(read_text(R"({"family": "gpt2", "hidden_size": 64, "num_layers": 2, "num_heads": 4,
                            "num_kv_heads": 2, "vocab_size": 100})")
                  .problems,
              HasSubstr("gpt2 has as many"));
}

TEST(PresetTest, EveryNameGivesAModelOfThatName) {
  for (const std::string_view name : preset_names()) EXPECT_EQ(preset(name).name, name);
}

TEST(PresetTest, UnknownNamesAreAnsweredWithTheKnownOnes) {
  try {
    preset("gpt5");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.problems().at(0).message, HasSubstr("llama-7b"));
  }
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
