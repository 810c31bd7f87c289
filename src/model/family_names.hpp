#pragma once
/// What Hugging Face calls the parts of each family's modules, without ".weight" and ".bias".

#include <string>
#include <vector>

#include "dstune/model/model_spec.hpp"

namespace dstune::model {

struct FamilyNames {
  const char* token_embedding;
  const char* position_embedding;  ///< empty: none
  const char* blocks;              ///< before a block's number
  const char* norm1;
  std::vector<const char*> qkv;  ///< one for all, or query, key, value
  const char* projection;
  const char* norm2;
  std::vector<const char*> fc;  ///< one for all, or gate and up
  const char* fc_projection;
  const char* final_norm;
  const char* head;
};

[[nodiscard]] const FamilyNames& names_of(ModelFamily family);

}  // namespace dstune::model
