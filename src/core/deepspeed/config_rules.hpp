#pragma once
/// Combinations that releases of DeepSpeed refuse, as data: one row a rule.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/settings.hpp"

namespace dstune {

using Pointer = std::string_view;

struct ConfigRule {
  Pointer pointer;  ///< the key that is to be changed
  bool (*is_broken)(const Settings&, Pointer pointer);
  std::string_view message;  ///< what is wrong, with a hint
  Weight weight = Weight::refused;
  Version since{}, until{};  ///< the releases; those that do not know the key have no such rule
};

/// Rules by subject: types of numbers; zero_optimization and how its stages reduce; all else.
[[nodiscard]] std::span<const ConfigRule> precision_rules();
[[nodiscard]] std::span<const ConfigRule> zero_rules();
[[nodiscard]] std::span<const ConfigRule> section_rules();

[[nodiscard]] bool has_low_precision_master(const Settings& settings);

/// One of DeepSpeed's own: it refuses keys in /scheduler/params that it does not take. The
/// arguments of PyTorch's schedulers are PyTorch's.
[[nodiscard]] bool is_deepspeed_scheduler(std::string_view type);

/// Whoever's it is.
[[nodiscard]] bool has_adam(const Settings& settings);
/// The settings say so at any stage: the optimizer is then one for the host.
[[nodiscard]] bool offloads_optimizer(const Settings& settings);

/// fp32, bf16 or fp16: which section is enabled.
[[nodiscard]] std::string precision_of(const Settings& settings);
/// A word of /data_types in these terms: fp16 for "half", and so on.
[[nodiscard]] std::string element_type(const Settings& settings, std::string_view pointer);

}  // namespace dstune
