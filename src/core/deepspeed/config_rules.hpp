#pragma once
/// What DeepSpeed 0.19.6 refuses in combination, as data: one row a rule.

#include <span>
#include <string_view>

#include "dstune/core/settings.hpp"

namespace dstune {

struct ConfigRule {
  std::string_view pointer;  ///< the key that is to be changed
  bool (*is_broken)(const Settings&);
  std::string_view message;  ///< what is wrong and the mend
  bool is_unbuilt = false;   ///< DeepSpeed takes it, the step here does not
};

/// By what they are about: types of numbers; zero_optimization and how its stages reduce; all else.
[[nodiscard]] std::span<const ConfigRule> precision_rules();
[[nodiscard]] std::span<const ConfigRule> zero_rules();
[[nodiscard]] std::span<const ConfigRule> section_rules();

[[nodiscard]] bool has_low_precision_master(const Settings& settings);

}  // namespace dstune
