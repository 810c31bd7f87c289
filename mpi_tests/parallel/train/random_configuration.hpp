#pragma once
/// Configurations drawn from the whole table of knobs, as a user could write them.

#include <cstdint>
#include <string>

#include "dstune/base/json.hpp"
#include "dstune/core/training_config.hpp"

namespace dstune::test {

struct RandomConfiguration {
  std::uint64_t seed = 0;  ///< draws it again
  json::Value ds_config;   ///< what a user would write
  /// The same, decided. Batch sizes and sequence length are the caller's.
  TrainingConfig config;
  int refused = 0;  ///< drafts before it that violations_of() refused
  /// For the caller to choose by.
  std::uint64_t model_number = 0, split_number = 0;
};

/// Every knob that acts may be written, with a value of its row's type and range: a new row is
/// drawn without a word here. A text without choices needs some (`words_of` in the implementation).
RandomConfiguration draw_configuration(std::uint64_t seed);

/// Whether one of the releases that configurations are drawn for knows the key.
[[nodiscard]] bool is_of_drawn_release(std::string_view pointer);

/// The first draft of it: the configuration itself where that is not refused.
json::Value first_draft(std::uint64_t seed);

}  // namespace dstune::test
