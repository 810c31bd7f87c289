#pragma once
/// Which arguments the optimizers and schedulers of DeepSpeed 0.19.6 take.

#include <string>
#include <string_view>
#include <vector>

#include "dstune/core/settings.hpp"

namespace dstune {

/// One of DeepSpeed's own: it refuses keys in /scheduler/params that it does not take. The
/// arguments of PyTorch's schedulers are PyTorch's.
[[nodiscard]] bool is_deepspeed_scheduler(std::string_view type);

/// Of these settings, at any stage: the optimizer is then one for the host.
[[nodiscard]] bool offloads_optimizer(const Settings& settings);

/// fp32, bf16 or fp16: which section is enabled.
[[nodiscard]] std::string precision_of(const Settings& settings);
/// A word of /data_types in these terms: fp16 for "half", and so on.
[[nodiscard]] std::string element_type(const Settings& settings, std::string_view pointer);
/// A key of the section bf16, by either name.
[[nodiscard]] bool is_bf16_on(const Settings& settings, const std::string& key);

/// Arguments that the optimizer or scheduler of these settings does not take, or lacks.
void add_argument_objections(const Settings& settings, std::vector<Objection>& objections);

}  // namespace dstune
