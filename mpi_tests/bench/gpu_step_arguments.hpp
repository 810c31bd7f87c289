#pragma once
/// What gpu_step_bench is asked for: pairs of --name and value.

#include <map>
#include <string>

#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"

namespace dstune {

using Arguments = std::map<std::string, std::string>;

/// All names, those that are not given with their defaults. Throws UsageError.
Arguments read_arguments(int argc, char** argv);
ModelSpec model_of(const Arguments& arguments);
TrainingConfig config_of(const Arguments& arguments);

}  // namespace dstune
