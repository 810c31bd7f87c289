#include "dstune/plan/step_plan.hpp"

namespace dstune {

std::optional<op::Collective> collective_of(const Operation& operation, int group_size) {
  std::optional<op::Collective> collective;
  visit_kind<OperationKind::collective>(
      [&](const auto& one) { collective = one.collective(group_size); }, operation);
  return collective;
}

std::vector<Access> accesses(const StepPlan& plan, const Operation& operation) {
  const ModelSpec& model = plan.model;
  const PlanSizes sizes{.samples = plan.config.micro_batch,
                        .sequence = plan.config.sequence_length,
                        .hidden = model.hidden_size,
                        .vocabulary = model.vocab_size,
                        .heads = model.num_heads,
                        .kv_heads = model.num_kv_heads,
                        .head_size = model.head_size,
                        .group_size = plan.group_size,
                        .reshard_pieces = plan.reshard_pieces};
  AccessList list;
  std::visit([&](const auto& one) { one.access(list, sizes); }, operation);
  return list.all();
}

}  // namespace dstune
