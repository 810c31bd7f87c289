#pragma once
/// The modules of a Hugging Face model by name and class, as DeepSpeed's zero_optimization.
/// leaf_module selects them: those of transformers 5.23 that have parameters.

#include <cstdint>
#include <string>
#include <vector>

#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {

enum class ModuleKind : std::uint8_t {
  root,
  base,  ///< the model without its head
  token_embedding,
  position_embedding,
  token_type_embedding,
  embedding_norm,
  blocks,  ///< the list of them
  block,
  norm1,
  branch_norm1,
  attention,
  query_key_value,  ///< in one
  query,
  key,
  value,
  query_norm,
  key_norm,
  projection,
  norm2,
  branch_norm2,
  mlp,
  fc,
  gate,
  up,
  fc_projection,
  final_norm,
  transform,
  transform_norm,
  head,
  other  ///< one that is not a module of the built-in step
};

struct NamedModule {
  ModuleKind kind;
  int layer;               ///< -1 outside of blocks
  std::string name;        ///< as in named_modules()
  std::string class_name;  ///< with its Python module
};

/// In the order in which the model registers them, which is that of its parameters.
[[nodiscard]] std::vector<NamedModule> named_modules(const ModelSpec& model);

/// The modules in a block, likewise.
[[nodiscard]] std::vector<ModuleKind> modules_of_block(const ModelSpec& model);

/// Returns the text before ".weight" and ".bias" of a module's parameters in a checkpoint. Names
/// are as in named_modules(), with two exceptions: gpt2's have no "transformer.", and gpt_neox's
/// head is "embed_out". A module in a block is that of block `layer`. Empty where there is none.
[[nodiscard]] std::string parameter_path(const ModelSpec& model, ModuleKind kind, int layer = -1);

/// Those of the model that are selected.
[[nodiscard]] std::vector<NamedModule> selected_modules(const ModelSpec& model,
                                                        const LeafModules& leaves);

}  // namespace dstune
