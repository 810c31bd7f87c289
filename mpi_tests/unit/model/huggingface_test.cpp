#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/model/parameter_table.hpp"

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

TEST(HuggingFaceTest, ReadsScaledRope) {
  const auto rope = [](const std::string& section, const char* beside = "") {
    return import_text(
               R"({"model_type": "llama", "head_dim": 4, "max_position_embeddings": 8192,)" +
               std::string(beside) + R"("rope_scaling": )" + section + "}")
        .rope;
  };
  EXPECT_EQ(rope("null"), RopeScaling());
  // It acts beyond max_position_embeddings.
  EXPECT_EQ(rope(R"({"type": "dynamic", "factor": 2.0})"), RopeScaling());
  EXPECT_EQ(rope(R"({"type": "linear", "factor": 2.0})"),
            (RopeScaling{.kind = RopeKind::linear, .factor = 2}));
  EXPECT_EQ(rope(R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 4096})"),
            (RopeScaling{.kind = RopeKind::llama3, .factor = 32, .original_positions = 4096}));
  const RopeScaling yarn = rope(R"({"type": "yarn", "factor": 4.0, "beta_fast": 16,
                                    "original_max_position_embeddings": 4096})");
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 1 + 0.1 * std::log(4.0));
  EXPECT_DOUBLE_EQ(rope(R"({"type": "yarn", "factor": 4.0, "mscale": 2.0, "mscale_all_dim": 1.0})")
                       .attention_factor,
                   (1 + 0.2 * std::log(4.0)) / (1 + 0.1 * std::log(4.0)));
  const RopeScaling longrope =
      rope(R"({"type": "longrope", "short_factor": [1, 1.5], "long_factor": [2, 3]})",
           R"("original_max_position_embeddings": 1024, )");
  EXPECT_EQ(longrope.original_positions, 1024);
  EXPECT_EQ(longrope.long_factor, (std::vector<double>{2, 3}));
  EXPECT_DOUBLE_EQ(longrope.attention_factor, std::sqrt(1 + 3.0 / 10.0));
}

TEST(HuggingFaceTest, RefusesOtherModelTypesByName) {
  const std::string problem = problems_of("{\n\"model_type\": \"bloom\"}");
  EXPECT_THAT(problem, HasSubstr("\"bloom\""));
  EXPECT_THAT(problem, HasSubstr("gpt2, llama, mistral"));
  EXPECT_THAT(problem, HasSubstr("config.json:2"));
  EXPECT_THAT(problems_of("{}"), HasSubstr("model_type is missing"));
  EXPECT_THAT(problems_of("[1]"), HasSubstr("object"));
}

TEST(HuggingFaceTest, RefusesWhatTheStepCanNotExpress) {
  const std::vector<std::pair<const char*, const char*>> refused{
      {R"({"model_type": "gpt2", "activation_function": "mish"})",
       "activation_function \"mish\" is not built; what is: gelu,"},
      {R"({"model_type": "gpt2", "reorder_and_upcast_attn": true})",
       "reorder_and_upcast_attn true is not built; only false is"},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})", "scale_attn_weights"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})", "inverse_layer_idx"},
      {R"({"model_type": "gpt2", "add_cross_attention": true})", "add_cross_attention"},
      {R"({"model_type": "llama", "hidden_act": "gelu"})",
       "hidden_act \"gelu\" is not built in a gated MLP; what is: silu"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3"}})", "factor is missing"},
      {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
           "low_freq_factor": 4.0, "high_freq_factor": 4.0}})",
       "high_freq_factor 4 is not above low_freq_factor 4"},
      {R"({"model_type": "llama", "rope_scaling": {"type": "proportional"}})",
       "rope_scaling of type \"proportional\" is not built; what is: default, dynamic, linear"},
      {R"({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0]}})",
       "short_factor has 1 numbers; a head has 48 frequencies"},
      {R"({"model_type": "qwen2", "num_hidden_layers": 2, "layer_types": ["full_attention"]})",
       "layer_types has 1 members for 2 layers"},
      {R"({"model_type": "qwen2", "layer_types": ["full_attention", "linear_attention"]})",
       "layer_types \"linear_attention\" is not built; what is: full_attention, "
       "sliding_attention"},
      {R"({"model_type": "opt", "layerdrop": 0.1})", "layerdrop 0.1 is not built; only 0 is"},
      {R"({"model_type": "opt", "layer_norm_elementwise_affine": false})",
       "layer_norm_elementwise_affine false is not built; only true is"},
      {R"({"model_type": "bert", "position_embedding_type": "relative_key"})",
       "position_embedding_type \"relative_key\" is not built; only \"absolute\" is"},
      {R"({"model_type": "bert", "is_decoder": true})", "is_decoder true is not built"},
      {R"({"model_type": "bert", "add_cross_attention": true})", "add_cross_attention true"},
      {R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"]})",
       "architectures \"BertForSequenceClassification\" is not built"},
      {R"({"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]})",
       "\"GPT2DoubleHeadsModel\" is not built"},
      {R"({"model_type": "mistral", "quantization_config": {"bits": 4}})",
       "quantization_config is not built"},
  };
  for (const auto& [text, word] : refused) EXPECT_THAT(problems_of(text), HasSubstr(word));
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
        Published{"qwen2-0.5b", qwen2, 494'032'768}, Published{"qwen3-0.6b", qwen3, 596'049'920}}) {
    const ModelSpec model = import_file(file);
    EXPECT_EQ(model.family, family) << file;
    EXPECT_EQ(parameter_count(model), parameters) << file;
    EXPECT_EQ(model.architecture, architecture_of(family)) << file;
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
}

TEST(PublishedConfigTest, RefusesGemma2WithWhatIsMissing) {
  const std::string problem = problems_of_file("gemma-2-2b");
  for (const char* word : {"\"gemma2\"", "attn_logit_softcapping", "final_logit_softcapping",
                           "hidden_activation", "sqrt(hidden_size)", "llama"})
    EXPECT_THAT(problem, HasSubstr(word));
}

TEST(PublishedConfigTest, RefusesNormsAfterTheirBranchInOpt) {
  const std::string problem = problems_of_file("opt-350m");
  EXPECT_THAT(problem, HasSubstr("do_layer_norm_before false is not built; only true is"));
  EXPECT_THAT(problem,
              HasSubstr("word_embed_proj_dim 512 is not built; only hidden_size (1024) is"));
}

TEST(HuggingFaceTest, SettingsChooseTheParts) {
  const auto parts = [](const char* text) { return import_text(text).architecture; };
  EXPECT_EQ(parts(R"({"model_type": "gpt2", "activation_function": "relu"})").activation,
            Activation::relu);
  EXPECT_EQ(parts(R"({"model_type": "opt", "activation_function": "gelu"})").activation,
            Activation::gelu);
  EXPECT_FALSE(parts(R"({"model_type": "opt", "enable_bias": false})").qkv_bias);
  EXPECT_FALSE(parts(R"({"model_type": "opt", "enable_bias": false})").mlp_bias);
  const Architecture biased = parts(R"({"model_type": "llama", "attention_bias": true})");
  EXPECT_TRUE(biased.qkv_bias && biased.projection_bias && !biased.mlp_bias);
  EXPECT_TRUE(parts(R"({"model_type": "llama", "mlp_bias": true})").mlp_bias);
  const Architecture neox =
      parts(R"({"model_type": "gpt_neox", "use_parallel_residual": false, "attention_bias": false,
                "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})");
  EXPECT_EQ(neox.block, BlockKind::sequential);
  EXPECT_EQ(neox.rotary_fraction, 0.5);
  EXPECT_FALSE(neox.qkv_bias);
  EXPECT_TRUE(neox.mlp_bias);
  EXPECT_EQ(parts(R"({"model_type": "bert", "type_vocab_size": 1})").token_types, 1);
  EXPECT_EQ(parts(R"({"model_type": "phi3", "partial_rotary_factor": 0.75})").rotary_fraction,
            0.75);
}

TEST(HuggingFaceTest, FindsTheAttentionWindow) {
  const auto window = [](const char* text) { return import_text(text).attention_window; };
  EXPECT_EQ(window(R"({"model_type": "mistral"})"), 4096);
  EXPECT_EQ(window(R"({"model_type": "mistral", "sliding_window": null})"), 0);
  EXPECT_EQ(window(R"({"model_type": "phi3"})"), 0);
  EXPECT_EQ(window(R"({"model_type": "qwen2", "sliding_window": 99})"), 0);
  EXPECT_EQ(window(R"({"model_type": "qwen2", "sliding_window": 99, "use_sliding_window": true})"),
            99);
  // Only layers from max_window_layers on have it.
  EXPECT_EQ(window(R"({"model_type": "qwen3", "sliding_window": 99, "use_sliding_window": true,
                       "max_window_layers": 32})"),
            0);
  EXPECT_EQ(window(R"({"model_type": "qwen3", "sliding_window": 99, "use_sliding_window": true,
                       "num_hidden_layers": 2, "layer_types": ["full_attention",
                       "full_attention"]})"),
            0);
}

TEST(HuggingFaceTest, FindsTheLayersWithoutAWindow) {
  const auto full = [](const char* text) { return import_text(text).full_layers; };
  EXPECT_TRUE(full(R"({"model_type": "mistral", "sliding_window": 99})").empty());
  EXPECT_EQ(full(R"({"model_type": "qwen2", "sliding_window": 99, "use_sliding_window": true,
                     "num_hidden_layers": 4, "max_window_layers": 2})"),
            (std::vector<std::int64_t>{0, 1}));
  const ModelSpec model =
      import_text(R"({"model_type": "qwen3", "sliding_window": 99, "use_sliding_window": true,
                      "num_hidden_layers": 3, "layer_types": ["sliding_attention",
                      "full_attention", "sliding_attention"]})");
  EXPECT_EQ(model.full_layers, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(model.window_of(0, 100), 99);
  EXPECT_EQ(model.window_of(1, 100), 0);
  EXPECT_EQ(model.window_of(2, 99), 0);
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
