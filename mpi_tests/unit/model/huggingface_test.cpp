#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/model/model_spec.hpp"

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

TEST(HuggingFaceTest, ReadsEveryGpt2Key) {
  const ModelSpec model = import_text(R"({
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 48, "n_layer": 3,
    "n_head": 6, "n_inner": 100, "n_positions": 64, "vocab_size": 500,
    "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 1e-6,
    "initializer_range": 0.03, "resid_pdrop": 0.0, "embd_pdrop": 0.2, "attn_pdrop": 0.05,
    "tie_word_embeddings": false})");
  const ModelSpec expected{.name = model.name,
                           .family = ModelFamily::gpt2,
                           .hidden_size = 48,
                           .num_layers = 3,
                           .num_heads = 6,
                           .num_kv_heads = 6,
                           .head_size = 8,
                           .intermediate_size = 100,
                           .vocab_size = 500,
                           .max_positions = 64,
                           .tie_embeddings = false,
                           .norm_epsilon = 1e-6,
                           .initializer_range = 0.03,
                           .dropout = 0.2};
  EXPECT_EQ(model, expected);
}

TEST(HuggingFaceTest, ReadsGroupedHeadsAndRope) {
  const ModelSpec model = import_text(R"({
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    "tie_word_embeddings": true, "rms_norm_eps": 1e-5})");
  EXPECT_EQ(model.num_kv_heads, 2);
  EXPECT_EQ(model.head_size, 16);
  EXPECT_EQ(model.rope_theta, 500000.0);
  EXPECT_TRUE(model.tie_embeddings);
}

TEST(HuggingFaceTest, RefusesOtherModelTypesByName) {
  const std::string problem = problems_of("{\n\"model_type\": \"bloom\"}");
  EXPECT_THAT(problem, HasSubstr("\"bloom\""));
  EXPECT_THAT(problem, HasSubstr("gpt2, llama"));
  EXPECT_THAT(problem, HasSubstr("config.json:2"));
  EXPECT_THAT(problems_of("{}"), HasSubstr("model_type is missing"));
  EXPECT_THAT(problems_of("[1]"), HasSubstr("object"));
}

TEST(HuggingFaceTest, RefusesWhatTheStepCanNotExpress) {
  const std::vector<std::pair<const char*, const char*>> refused{
      {R"({"model_type": "gpt2", "activation_function": "relu"})", "relu"},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})", "scale_attn_weights"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})", "inverse_layer_idx"},
      {R"({"model_type": "gpt2", "add_cross_attention": true})", "add_cross_attention"},
      {R"({"model_type": "llama", "hidden_act": "gelu"})", "hidden_act"},
      {R"({"model_type": "llama", "attention_bias": true})", "attention_bias"},
      {R"({"model_type": "llama", "mlp_bias": true})", "mlp_bias"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3"}})", "llama3"},
      {R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}})", "linear"},
  };
  for (const auto& [text, word] : refused) EXPECT_THAT(problems_of(text), HasSubstr(word));
}

TEST(HuggingFaceTest, RefusesHeadsThatDoNotFit) {
  EXPECT_THAT(problems_of(R"({"model_type": "gpt2", "n_head": 7})"), HasSubstr("7 heads"));
  EXPECT_THAT(problems_of(R"({"model_type": "llama", "num_key_value_heads": 5})"),
              HasSubstr("5 key and value heads"));
  EXPECT_THAT(problems_of(R"({"model_type": "llama", "head_dim": 7})"), HasSubstr("even"));
}

TEST(HuggingFaceTest, NamesEveryProblemAtOnce) {
  const std::string problems = problems_of(
      R"({"model_type": "gpt2", "n_layer": -1, "n_embd": 4.7, "add_cross_attention": true})");
  EXPECT_THAT(problems, HasSubstr("/n_layer"));
  EXPECT_THAT(problems, HasSubstr("/n_embd"));
  EXPECT_THAT(problems, HasSubstr("/add_cross_attention"));
}

}  // namespace
}  // namespace dstune
