#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "choices.hpp"
#include "dstune/base/error.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/model/parameter_table.hpp"
#include "golden.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

ModelSpec import_text(std::string_view text) {
  return import_huggingface(json::Document::parse(text, "config.json"));
}

/// The problems of a text, one a line.
std::string problems_of(std::string_view text) {
  try {
    import_text(text);
  } catch (const InputError& error) {
    std::string all;
    for (const Problem& problem : error.problems()) all += problem.text() + "\n";
    return all;
  }
  return "none";
}

json::Document published(const std::string& name) {
  return json::Document::read(std::string(DSTUNE_CONFIGS) + "/" + name + ".json");
}
ModelSpec import_file(const std::string& name) {
  return import_huggingface(published(name));
}
std::string problems_of_file(const std::string& name) {
  return problems_of(published(name).root().dump());
}

/// "key value, ..." where they are not those of the family's config without keys, or the problems.
std::string answer_to(const std::string& text) {
  const std::string problems = problems_of(text);
  if (problems != "none") return problems.substr(0, problems.size() - 1);
  const auto members_of = [](const json::Value& config) {
    json::Value model = to_json(import_text(config.dump()));
    model.erase("name");
    return model.flatten();
  };
  const json::Value config = json::Value::parse(text);
  const json::Value usual = members_of({{"model_type", config.at("model_type")}});
  const json::Value found = members_of(config);
  std::string differences;
  for (const auto& [key, value] : found.items())
    if (!usual.contains(key) || usual.at(key) != value)
      differences += (differences.empty() ? "" : ", ") + key.substr(1) + " " + value.dump();
  return differences.empty() ? "the family's" : differences;
}

TEST(HuggingFaceTest, ConfigsAreModelsOrRefused) {
  test::expect_golden(DSTUNE_MODEL_DATA "/huggingface_configs.txt",
                      [](const std::string& input) { return test::answers_to(input, answer_to); });
}

TEST(HuggingFaceTest, TakesGpt2DefaultsWhereKeysAreAbsent) {
  ModelSpec expected = preset("gpt2");
  expected.name = "gpt2-124M";
  EXPECT_EQ(import_text(R"({"model_type": "gpt2"})"), expected);
  EXPECT_EQ(import_text(R"({"model_type": "gpt2", "n_inner": null})"), expected);
}

TEST(HuggingFaceTest, TakesLlamaDefaultsWhereKeysAreAbsent) {
  ModelSpec expected = preset("llama-7b");
  expected.name = "llama-6.7B";
  EXPECT_EQ(import_text(R"({"model_type": "llama"})"), expected);
}

struct Published {
  const char* file;
  ModelFamily family;
  std::int64_t parameters;
};

TEST(PublishedConfigTest, HasThePublishedNumberOfParameters) {
  using enum ModelFamily;
  for (const auto& [file, family, parameters] :
       {Published{"gpt2", gpt2, 124'439'808}, Published{"opt-125m", opt, 125'239'296},
        Published{"pythia-160m", gpt_neox, 162'322'944},
        Published{"bert-base-uncased", bert, 109'514'298},
        Published{"llama-2-7b", llama, 6'738'415'616},
        Published{"llama-3.2-1b", llama, 1'235'814'400},
        Published{"mistral-7b-v0.1", mistral, 7'241'732'096},
        Published{"phi-3-mini-4k", phi3, 3'821'079'552},
        Published{"qwen2-0.5b", qwen2, 494'032'768}, Published{"qwen3-0.6b", qwen3, 596'049'920},
        Published{"olmo-2-1b", olmo2, 1'484'916'736},
        Published{"smollm3-3b", smollm3, 3'075'098'624},
        Published{"granite-3.0-2b", granite, 2'533'531'648},
        Published{"gemma-2-2b", gemma2, 2'614'341'888},
        Published{"gemma-3-1b", gemma3_text, 999'885'952},
        Published{"falcon-7b", falcon, 6'921'720'704}}) {
    const ModelSpec model = import_file(file);
    EXPECT_EQ(model.family, family) << file;
    EXPECT_EQ(parameter_count(model), parameters) << file;
    Architecture usual = architecture_of(family);
    if (family == granite) {
      usual.embedding_multiplier = 12;
      usual.residual_multiplier = 0.22;
      usual.attention_multiplier = 0.015625;
      usual.logits_scaling = 8;
    }
    EXPECT_EQ(model.architecture, usual) << file;
  }
}

TEST(PublishedConfigTest, KeepsWhatTellsTheFamiliesApart) {
  EXPECT_EQ(import_file("pythia-160m").rotary_size(), 16);
  EXPECT_FALSE(import_file("pythia-160m").tie_embeddings);
  EXPECT_EQ(import_file("mistral-7b-v0.1").attention_window, 4096);
  EXPECT_EQ(import_file("phi-3-mini-4k").attention_window, 2047);
  EXPECT_EQ(import_file("qwen2-0.5b").attention_window, 0);
  EXPECT_EQ(import_file("qwen2-0.5b").rope_theta, 1e6);
  EXPECT_EQ(import_file("llama-3.2-1b").rope,
            (RopeScaling{.kind = RopeKind::llama3, .factor = 32, .original_positions = 8192}));
  EXPECT_EQ(import_file("qwen3-0.6b").head_size, 128);
  EXPECT_TRUE(import_file("qwen3-0.6b").tie_embeddings);
  EXPECT_EQ(import_file("bert-base-uncased").norm_epsilon, 1e-12);
  EXPECT_EQ(import_file("bert-base-uncased").dropout, 0.1);
  EXPECT_EQ(import_file("opt-125m").max_positions, 2048);
  EXPECT_FALSE(import_file("smollm3-3b").rotates(3));
  EXPECT_TRUE(import_file("smollm3-3b").rotates(4));
  EXPECT_EQ(import_file("gemma-2-2b").window_of(0, 8192), 4096);
  EXPECT_EQ(import_file("gemma-2-2b").window_of(1, 8192), 0);
  EXPECT_TRUE(import_file("gemma-3-1b").rotates_locally(4));
  EXPECT_FALSE(import_file("gemma-3-1b").rotates_locally(5));
}

TEST(PublishedConfigTest, RefusesNormsAfterTheirBranchInOpt) {
  const std::string problem = problems_of_file("opt-350m");
  EXPECT_THAT(problem, HasSubstr("do_layer_norm_before false is not built; only true is"));
  EXPECT_THAT(problem,
              HasSubstr("word_embed_proj_dim 512 is not built; only hidden_size (1024) is"));
}

TEST(HuggingFaceTest, LayersHaveTheirWindows) {
  const ModelSpec model =
      import_text(R"({"model_type": "qwen3", "sliding_window": 99, "use_sliding_window": true,
                      "num_hidden_layers": 3, "layer_types": ["sliding_attention",
                      "full_attention", "sliding_attention"]})");
  EXPECT_EQ(model.window_of(0, 100), 99);
  EXPECT_EQ(model.window_of(1, 100), 0);
  EXPECT_EQ(model.window_of(2, 99), 0);
}

}  // namespace
}  // namespace dstune
