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

}  // namespace dstune
