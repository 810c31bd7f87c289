#include "dstune/model/module_names.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

using enum ModuleKind;

/// A class without a Python module is one of the family's.
struct Row {
  ModuleKind kind;
  const char* name;
  const char* class_name;
};
struct Family {
  const char* prefix;  ///< of the classes
  std::vector<Row> outside;
  const char* block;  ///< class
  std::vector<Row> inside;
};

constexpr auto linear = "torch.nn.modules.linear.Linear";
constexpr auto conv1d = "transformers.pytorch_utils.Conv1D";
constexpr auto embedding = "torch.nn.modules.sparse.Embedding";
constexpr auto layer_norm = "torch.nn.modules.normalization.LayerNorm";
constexpr auto module_list = "torch.nn.modules.container.ModuleList";

const Family gpt2_modules{"GPT2",
                          {{root, "", "LMHeadModel"},
                           {base, "transformer", "Model"},
                           {token_embedding, "transformer.wte", embedding},
                           {position_embedding, "transformer.wpe", embedding},
                           {blocks, "transformer.h", module_list},
                           {final_norm, "transformer.ln_f", layer_norm},
                           {head, "lm_head", linear}},
                          "Block",
                          {{norm1, ".ln_1", layer_norm},
                           {attention, ".attn", "Attention"},
                           {query_key_value, ".attn.c_attn", conv1d},
                           {projection, ".attn.c_proj", conv1d},
                           {norm2, ".ln_2", layer_norm},
                           {mlp, ".mlp", "MLP"},
                           {fc, ".mlp.c_fc", conv1d},
                           {fc_projection, ".mlp.c_proj", conv1d}}};

const Family gpt_neox_modules{"GPTNeoX",
                              {{root, "", "ForCausalLM"},
                               {base, "gpt_neox", "Model"},
                               {token_embedding, "gpt_neox.embed_in", embedding},
                               {blocks, "gpt_neox.layers", module_list},
                               {final_norm, "gpt_neox.final_layer_norm", layer_norm},
                               {head, "lm_head", linear}},
                              "Layer",
                              {{norm1, ".input_layernorm", layer_norm},
                               {norm2, ".post_attention_layernorm", layer_norm},
                               {attention, ".attention", "Attention"},
                               {query_key_value, ".attention.query_key_value", linear},
                               {projection, ".attention.dense", linear},
                               {mlp, ".mlp", "MLP"},
                               {fc, ".mlp.dense_h_to_4h", linear},
                               {fc_projection, ".mlp.dense_4h_to_h", linear}}};

const Family opt_modules{
    "OPT",
    {{root, "", "ForCausalLM"},
     {other, "model", "Model"},
     {base, "model.decoder", "Decoder"},
     {token_embedding, "model.decoder.embed_tokens", embedding},
     {position_embedding, "model.decoder.embed_positions", "LearnedPositionalEmbedding"},
     {final_norm, "model.decoder.final_layer_norm", layer_norm},
     {blocks, "model.decoder.layers", module_list},
     {head, "lm_head", linear}},
    "DecoderLayer",
    {{attention, ".self_attn", "Attention"},
     {key, ".self_attn.k_proj", linear},
     {value, ".self_attn.v_proj", linear},
     {query, ".self_attn.q_proj", linear},
     {projection, ".self_attn.out_proj", linear},
     {norm1, ".self_attn_layer_norm", layer_norm},
     {fc, ".fc1", linear},
     {fc_projection, ".fc2", linear},
     {norm2, ".final_layer_norm", layer_norm}}};

const Family bert_modules{
    "Bert",
    {{root, "", "ForMaskedLM"},
     {base, "bert", "Model"},
     {other, "bert.embeddings", "Embeddings"},
     {token_embedding, "bert.embeddings.word_embeddings", embedding},
     {position_embedding, "bert.embeddings.position_embeddings", embedding},
     {token_type_embedding, "bert.embeddings.token_type_embeddings", embedding},
     {embedding_norm, "bert.embeddings.LayerNorm", layer_norm},
     {other, "bert.encoder", "Encoder"},
     {blocks, "bert.encoder.layer", module_list},
     {other, "cls", "OnlyMLMHead"},
     {other, "cls.predictions", "LMPredictionHead"},
     {other, "cls.predictions.transform", "PredictionHeadTransform"},
     {transform, "cls.predictions.transform.dense", linear},
     {transform_norm, "cls.predictions.transform.LayerNorm", layer_norm},
     {head, "cls.predictions.decoder", linear}},
    "Layer",
    {{other, ".attention", "Attention"},
     {other, ".attention.self", "SelfAttention"},
     {query, ".attention.self.query", linear},
     {key, ".attention.self.key", linear},
     {value, ".attention.self.value", linear},
     {other, ".attention.output", "SelfOutput"},
     {projection, ".attention.output.dense", linear},
     {norm1, ".attention.output.LayerNorm", layer_norm},
     {other, ".intermediate", "Intermediate"},
     {fc, ".intermediate.dense", linear},
     {other, ".output", "Output"},
     {fc_projection, ".output.dense", linear},
     {norm2, ".output.LayerNorm", layer_norm}}};

/// Falcon's by what its config says of norms: named after their branch where both branches are
/// parallel and have one each.
Family falcon_modules(BlockKind block, bool shared_norm) {
  constexpr auto own_linear = "Linear";
  Family family{"Falcon",
                {{root, "", "ForCausalLM"},
                 {base, "transformer", "Model"},
                 {token_embedding, "transformer.word_embeddings", embedding},
                 {blocks, "transformer.h", module_list},
                 {final_norm, "transformer.ln_f", layer_norm},
                 {head, "lm_head", linear}},
                "DecoderLayer",
                {{attention, ".self_attention", "Attention"},
                 {query_key_value, ".self_attention.query_key_value", own_linear},
                 {projection, ".self_attention.dense", own_linear},
                 {mlp, ".mlp", "MLP"},
                 {fc, ".mlp.dense_h_to_4h", own_linear},
                 {fc_projection, ".mlp.dense_4h_to_h", own_linear}}};
  if (block == BlockKind::sequential)
    family.inside.push_back({norm2, ".post_attention_layernorm", layer_norm});
  const bool is_of_branch = block == BlockKind::parallel && !shared_norm;
  family.inside.push_back({norm1, is_of_branch ? ".ln_attn" : ".input_layernorm", layer_norm});
  if (is_of_branch) family.inside.push_back({norm2, ".ln_mlp", layer_norm});
  return family;
}

const Family& falcon_modules(const Architecture& parts) {
  static const Family sequential = falcon_modules(BlockKind::sequential, false);
  static const Family shared = falcon_modules(BlockKind::parallel, true);
  static const Family parallel = falcon_modules(BlockKind::parallel, false);
  if (parts.block == BlockKind::sequential) return sequential;
  return parts.shared_norm ? shared : parallel;
}

/// LLaMA's, and those that are built like it.
Family llama_modules(const char* prefix, bool merged, bool normed_heads) {
  Family family{prefix,
                {{root, "", "ForCausalLM"},
                 {base, "model", "Model"},
                 {token_embedding, "model.embed_tokens", embedding},
                 {blocks, "model.layers", module_list},
                 {final_norm, "model.norm", "RMSNorm"},
                 {head, "lm_head", linear}},
                "DecoderLayer",
                {{attention, ".self_attn", "Attention"}}};
  const auto add = [&family](const std::vector<Row>& rows) {
    family.inside.insert(family.inside.end(), rows.begin(), rows.end());
  };
  const Row projection_row{projection, ".self_attn.o_proj", linear};
  if (merged) {
    add({projection_row, {query_key_value, ".self_attn.qkv_proj", linear}});
  } else {
    add({{query, ".self_attn.q_proj", linear},
         {key, ".self_attn.k_proj", linear},
         {value, ".self_attn.v_proj", linear},
         projection_row});
  }
  if (normed_heads) {
    add({{query_norm, ".self_attn.q_norm", "RMSNorm"}, {key_norm, ".self_attn.k_norm", "RMSNorm"}});
  }
  add({{mlp, ".mlp", "MLP"}});
  if (merged) {
    add({{fc, ".mlp.gate_up_proj", linear}});
  } else {
    add({{gate, ".mlp.gate_proj", linear}, {up, ".mlp.up_proj", linear}});
  }
  add({{fc_projection, ".mlp.down_proj", linear},
       {norm1, ".input_layernorm", "RMSNorm"},
       {norm2, ".post_attention_layernorm", "RMSNorm"}});
  return family;
}

/// The norms come after their branch.
Family olmo2_modules() {
  Family family = llama_modules("Olmo2", false, true);
  for (Row& row : family.inside) {
    if (row.kind == norm1) row.name = ".post_attention_layernorm";
    if (row.kind == norm2) row.name = ".post_feedforward_layernorm";
  }
  return family;
}

/// A norm before each branch, and one after it.
Family gemma_modules(const char* prefix, const char* base_class, bool normed_heads) {
  Family family = llama_modules(prefix, false, normed_heads);
  for (Row& row : family.outside) {
    if (row.kind == base) row.class_name = base_class;
    if (row.kind == token_embedding) row.class_name = "TextScaledWordEmbedding";
  }
  family.inside.pop_back();
  for (const Row& row : {Row{branch_norm1, ".post_attention_layernorm", "RMSNorm"},
                         Row{norm2, ".pre_feedforward_layernorm", "RMSNorm"},
                         Row{branch_norm2, ".post_feedforward_layernorm", "RMSNorm"}})
    family.inside.push_back(row);
  return family;
}

/// The Python module that a family's classes are in.
std::string_view python_module(ModelFamily family) {
  return family == ModelFamily::gemma3_text ? "gemma3" : to_text(family);
}

const Family& family_of(const ModelSpec& model) {
  if (model.family == ModelFamily::falcon) return falcon_modules(model.architecture);
  static const std::map<ModelFamily, Family> families = {
      {ModelFamily::gpt2, gpt2_modules},
      {ModelFamily::llama, llama_modules("Llama", false, false)},
      {ModelFamily::mistral, llama_modules("Mistral", false, false)},
      {ModelFamily::qwen2, llama_modules("Qwen2", false, false)},
      {ModelFamily::phi3, llama_modules("Phi3", true, false)},
      {ModelFamily::opt, opt_modules},
      {ModelFamily::gpt_neox, gpt_neox_modules},
      {ModelFamily::qwen3, llama_modules("Qwen3", false, true)},
      {ModelFamily::bert, bert_modules},
      {ModelFamily::olmo2, olmo2_modules()},
      {ModelFamily::smollm3, llama_modules("SmolLM3", false, false)},
      {ModelFamily::granite, llama_modules("Granite", false, false)},
      {ModelFamily::gemma2, gemma_modules("Gemma2", "Model", false)},
      {ModelFamily::gemma3_text, gemma_modules("Gemma3", "TextModel", true)},
  };
  return families.at(model.family);
}

/// The row of a kind; null where the family has none.
const Row* find(const std::vector<Row>& rows, ModuleKind kind) {
  const auto found = std::ranges::find(rows, kind, &Row::kind);
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

std::vector<NamedModule> named_modules(const ModelSpec& model) {
  const Family& family = family_of(model);
  const std::string own = fmt::format("transformers.models.{0}.modeling_{0}.{1}",
                                      python_module(model.family), family.prefix);
  std::vector<NamedModule> modules;
  const auto add = [&](ModuleKind kind, int layer, std::string name, const char* class_name) {
    const bool is_own = std::string_view(class_name).find('.') == std::string_view::npos;
    modules.push_back({kind, layer, std::move(name), (is_own ? own : std::string()) + class_name});
  };
  for (const Row& row : family.outside) {
    add(row.kind, -1, row.name, row.class_name);
    if (row.kind != blocks) continue;
    for (int layer = 0; layer < static_cast<int>(model.num_layers); ++layer) {
      const std::string name = row.name + ("." + std::to_string(layer));
      add(block, layer, name, family.block);
      for (const Row& each : family.inside)
        add(each.kind, layer, name + each.name, each.class_name);
    }
  }
  return modules;
}

std::vector<ModuleKind> modules_of_block(const ModelSpec& model) {
  std::vector<ModuleKind> kinds;
  for (const Row& row : family_of(model).inside) kinds.push_back(row.kind);
  return kinds;
}

std::string parameter_path(const ModelSpec& model, ModuleKind kind, int layer) {
  const Family& known = family_of(model);
  std::string path;
  if (const Row* const outside = find(known.outside, kind)) {
    path = outside->name;
  } else if (const Row* const inside = find(known.inside, kind)) {
    path.append(find(known.outside, blocks)->name).append(".");
    path.append(std::to_string(layer)).append(inside->name);
  }
  if (model.family == ModelFamily::gpt_neox && kind == head) return "embed_out";
  constexpr std::string_view base_of_gpt2 = "transformer.";
  if (model.family == ModelFamily::gpt2 && path.starts_with(base_of_gpt2))
    path.erase(0, base_of_gpt2.size());
  return path;
}

std::vector<NamedModule> selected_modules(const ModelSpec& model, const LeafModules& leaves) {
  if (leaves == LeafModules()) return {};
  const std::vector<std::string_view> classes = lines_of(leaves.classes);
  const std::vector<std::string_view> names = lines_of(leaves.names);
  const std::vector<std::string_view> suffixes = lines_of(leaves.name_suffixes);
  const auto is_selected = [&](const NamedModule& module) {
    const std::string_view whole = module.class_name;
    const std::string_view plain = whole.substr(whole.rfind('.') + 1);
    return std::any_of(classes.begin(), classes.end(),
                       [&](const auto& each) { return each == whole || each == plain; }) ||
           std::find(names.begin(), names.end(), module.name) != names.end() ||
           std::any_of(suffixes.begin(), suffixes.end(),
                       [&](const auto& each) { return module.name.ends_with(each); });
  };
  std::vector<NamedModule> modules = named_modules(model);
  std::erase_if(modules, [&](const NamedModule& module) { return !is_selected(module); });
  return modules;
}

}  // namespace dstune
