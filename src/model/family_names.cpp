#include "family_names.hpp"

#include "dstune/base/error.hpp"

namespace dstune::model {
namespace {

const FamilyNames gpt2{.token_embedding = "wte",
                       .position_embedding = "wpe",
                       .blocks = "h.",
                       .norm1 = "ln_1",
                       .qkv = {"attn.c_attn"},
                       .projection = "attn.c_proj",
                       .norm2 = "ln_2",
                       .fc = {"mlp.c_fc"},
                       .fc_projection = "mlp.c_proj",
                       .final_norm = "ln_f",
                       .head = "lm_head"};

const FamilyNames llama{.token_embedding = "model.embed_tokens",
                        .position_embedding = "",
                        .blocks = "model.layers.",
                        .norm1 = "input_layernorm",
                        .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                        .projection = "self_attn.o_proj",
                        .norm2 = "post_attention_layernorm",
                        .fc = {"mlp.gate_proj", "mlp.up_proj"},
                        .fc_projection = "mlp.down_proj",
                        .final_norm = "model.norm",
                        .head = "lm_head"};

FamilyNames merged_llama() {
  FamilyNames names = llama;
  names.qkv = {"self_attn.qkv_proj"};
  names.fc = {"mlp.gate_up_proj"};
  return names;
}
const FamilyNames phi3 = merged_llama();

const FamilyNames opt{.token_embedding = "model.decoder.embed_tokens",
                      .position_embedding = "model.decoder.embed_positions",
                      .blocks = "model.decoder.layers.",
                      .norm1 = "self_attn_layer_norm",
                      .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                      .projection = "self_attn.out_proj",
                      .norm2 = "final_layer_norm",
                      .fc = {"fc1"},
                      .fc_projection = "fc2",
                      .final_norm = "model.decoder.final_layer_norm",
                      .head = "lm_head"};

const FamilyNames gpt_neox{.token_embedding = "gpt_neox.embed_in",
                           .position_embedding = "",
                           .blocks = "gpt_neox.layers.",
                           .norm1 = "input_layernorm",
                           .qkv = {"attention.query_key_value"},
                           .projection = "attention.dense",
                           .norm2 = "post_attention_layernorm",
                           .fc = {"mlp.dense_h_to_4h"},
                           .fc_projection = "mlp.dense_4h_to_h",
                           .final_norm = "gpt_neox.final_layer_norm",
                           .head = "embed_out"};

const FamilyNames bert{
    .token_embedding = "bert.embeddings.word_embeddings",
    .position_embedding = "bert.embeddings.position_embeddings",
    .blocks = "bert.encoder.layer.",
    .norm1 = "attention.output.LayerNorm",
    .qkv = {"attention.self.query", "attention.self.key", "attention.self.value"},
    .projection = "attention.output.dense",
    .norm2 = "output.LayerNorm",
    .fc = {"intermediate.dense"},
    .fc_projection = "output.dense",
    .final_norm = "",
    .head = "cls.predictions.decoder"};

}  // namespace

const FamilyNames& names_of(ModelFamily family) {
  switch (family) {
    case ModelFamily::gpt2:
      return gpt2;
    case ModelFamily::llama:
    case ModelFamily::mistral:
    case ModelFamily::qwen2:
    case ModelFamily::qwen3:
      return llama;
    case ModelFamily::phi3:
      return phi3;
    case ModelFamily::opt:
      return opt;
    case ModelFamily::gpt_neox:
      return gpt_neox;
    case ModelFamily::bert:
      return bert;
  }
  throw LogicError("a model is of a known family");
}

}  // namespace dstune::model
