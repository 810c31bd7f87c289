#include "dstune/model/model_spec.hpp"

namespace dstune {

std::string_view to_text(ModelFamily family) {
  return family == ModelFamily::gpt2 ? "gpt2" : "llama";
}

}  // namespace dstune
