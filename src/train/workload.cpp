#include "dstune/train/workload.hpp"

#include "dstune/base/error.hpp"
#include "given_workloads.hpp"
#include "plugin/plugin_workload.hpp"
#include "transformer_workload.hpp"

namespace dstune {

std::unique_ptr<Workload> make_workload(const WorkloadContext& context) {
  switch (context.spec->kind) {
    case WorkloadKind::transformer:
      return std::make_unique<train::TransformerWorkload>(context);
    case WorkloadKind::synthetic:
      return std::make_unique<train::SyntheticWorkload>(context);
    case WorkloadKind::replay:
      return std::make_unique<train::ReplayWorkload>(context);
    case WorkloadKind::plugin:
      return std::make_unique<train::PluginWorkload>(context);
  }
  throw LogicError("a workload is of a known kind");
}

}  // namespace dstune
