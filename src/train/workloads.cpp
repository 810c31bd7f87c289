#include <fmt/format.h>

#include "dstune/model/parameter_table.hpp"
#include "dstune/train/workload.hpp"

namespace dstune {

double tokens_per_step(const WorkloadContext& context) {
  return static_cast<double>(global_batch(*context.config, context.group->size()) *
                             context.config->sequence_length);
}

double model_flops_per_step(const WorkloadContext& context) {
  return flops_per_token(*context.model, context.config->sequence_length) *
         tokens_per_step(context);
}

WarmupNeed SettledSteps::need_of(const std::string& configuration) const {
  const auto found = steps_.find(configuration);
  return found == steps_.end() ? WarmupNeed{} : WarmupNeed{found->second, false};
}

std::string settled_key(const WorkloadContext& context) {
  return fmt::format("{} on {}: {}", *context.experiment_name, context.group->size(),
                     context.ds_config == nullptr ? "" : *context.ds_config);
}

}  // namespace dstune
