#include "dstune/report/numerics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dstune {

std::vector<std::string> changed_numerics(const Experiment& experiment) {
  std::vector<std::string> keys;
  // A group of one gathers nothing, and inside a node gradients are reduced as they are.
  if (quantizes_weights(experiment.config) && experiment.shape.size() > 1)
    keys.emplace_back("zero_quantized_weights");
  if (quantizes_gradients(experiment.config) && experiment.shape.num_nodes > 1)
    keys.emplace_back("zero_quantized_gradients");
  return keys;
}

std::string changed_numerics_text(const Experiment& experiment) {
  const std::vector<std::string> keys = changed_numerics(experiment);
  if (keys.empty()) return "";
  return fmt::format("by {}: its losses are others than without", fmt::join(keys, " and "));
}

}  // namespace dstune
