#include "dstune/search/planner.hpp"
#include "packed_members.hpp"

namespace dstune {

namespace {

/// The members that are not open; only a planned space's own packing is ever there.
const PackedMembers& packed(const PlannedSpace& space) {
  return static_cast<const PackedMembers&>(*space.members.packing());
}

}  // namespace

GroupShape PlannedSpace::shape(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->planned.experiment.shape : packed(*this).shape(member);
}

int PlannedSpace::zero_stage(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->planned.experiment.config.zero_stage
                        : packed(*this).zero_stage(member);
}

std::int64_t PlannedSpace::micro_batch(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->planned.experiment.config.micro_batch
                        : packed(*this).micro_batch(member);
}

std::optional<std::uint64_t> PlannedSpace::micro_batch_chain(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->micro_batch_chain : packed(*this).micro_batch_chain(member);
}

PlanStatus PlannedSpace::status(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->planned.status : packed(*this).status(member);
}

PruneKind PlannedSpace::prune_kind(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->planned.prune_kind : packed(*this).prune_kind(member);
}

bool PlannedSpace::is_below_lowest(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? one->is_below_lowest : packed(*this).is_below_lowest(member);
}

std::string_view PlannedSpace::reason(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? std::string_view(one->planned.reason) : packed(*this).reason(member);
}

std::optional<double> PlannedSpace::predicted_throughput(std::size_t member) const {
  const PlannedMember* const one = members.opened(member);
  return one != nullptr ? ranked_throughput(one->planned.predicted)
                        : packed(*this).predicted_throughput(member);
}

void PlannedSpace::decide(std::size_t member, PlanStatus status, PruneKind kind,
                          std::string_view reason) {
  if (PlannedMember* const one = members.opened(member)) {
    one->planned.status = status;
    one->planned.prune_kind = kind;
    one->planned.reason = reason;
  } else {
    static_cast<PackedMembers&>(*members.packing()).decide(member, status, kind, reason);
  }
}

}  // namespace dstune
