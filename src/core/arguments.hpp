#pragma once
/// Which arguments the optimizers and schedulers of DeepSpeed 0.19.6 take.

#include <string_view>
#include <vector>

#include "dstune/core/settings.hpp"

namespace dstune {

/// One of DeepSpeed's own: it refuses keys in /scheduler/params that it does not take. The
/// arguments of PyTorch's schedulers are PyTorch's.
[[nodiscard]] bool is_deepspeed_scheduler(std::string_view type);

/// Arguments that the optimizer or scheduler of these settings does not take, or lacks.
void add_argument_objections(const Settings& settings, std::vector<Objection>& objections);

}  // namespace dstune
