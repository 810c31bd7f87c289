#include "packed_rows.hpp"

#include <tuple>

namespace dstune {

const PackedRows::Note* PackedRows::note_of(std::size_t place) const {
  return place < notes_.size() && notes_[place].is_there ? &notes_[place] : nullptr;
}

PlanStatus PackedRows::status(std::size_t place) const {
  const Note* const note = note_of(place);
  return note != nullptr ? note->status : source_->status(place);
}

PruneKind PackedRows::prune_kind(std::size_t place) const {
  const Note* const note = note_of(place);
  return note != nullptr ? note->prune_kind : source_->prune_kind(place);
}

std::string_view PackedRows::reason(std::size_t place) const {
  const Note* const note = note_of(place);
  return note != nullptr ? reasons_->text(note->reason) : source_->reason(place);
}

void PackedRows::decide(std::size_t place, PlanStatus status, PruneKind kind,
                        std::string_view reason) {
  if (notes_.empty()) notes_.resize(size());
  notes_[place] = {reasons_->add(reason), status, kind, true};
}

void PackedRows::predict(std::size_t place, const Prediction& predicted) {
  if (speeds_.empty()) speeds_.resize(size());
  speeds_[place] = Speeds(predicted.throughput, predicted.target_throughput);
}

Row PackedRows::unpack(std::size_t place) const {
  Row row{source_->planned(place)};
  PlannedExperiment& planned = row.planned;
  if (const Note* const note = note_of(place)) {
    planned.status = note->status;
    planned.prune_kind = note->prune_kind;
    planned.reason = reasons_->text(note->reason);
  }
  if (place < speeds_.size() && speeds_[place])
    std::tie(planned.predicted.throughput, planned.predicted.target_throughput) = *speeds_[place];
  return row;
}

void PackedRows::pack(std::size_t place, const Row& row) {
  const PlannedExperiment& planned = row.planned;
  if (planned.status != status(place) || planned.prune_kind != prune_kind(place) ||
      planned.reason != reason(place))
    decide(place, planned.status, planned.prune_kind, planned.reason);
}

}  // namespace dstune
