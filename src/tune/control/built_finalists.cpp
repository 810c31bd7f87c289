#include "control/built_finalists.hpp"

#include <algorithm>

namespace dstune {

/// Recordings of micro-steps stay, too. They are in no plan.
BuiltFinalists::Taken BuiltFinalists::taken_by(std::size_t member) const {
  const Row& row = scoreboard_.row(member);
  const Prediction& planned = row.planned.predicted;
  const std::int64_t recorded = row.record ? row.record->measurement.peak_memory.graph_bytes : 0;
  return {planned.peak_memory_bytes - planned.host_memory_bytes + recorded,
          planned.host_memory_bytes, planned.disk_bytes};
}

/// Groups of other shapes share ranks as a rule: all of it is taken to be on one rank.
bool BuiltFinalists::fit(const std::vector<std::size_t>& finalists) const {
  Taken all, rebuilt;
  GroupShape largest;
  const auto note_shape = [&](std::size_t member) {
    const GroupShape& shape = scoreboard_.row(member).planned.experiment.shape;
    if (shape.size() >= largest.size()) largest = shape;
  };
  for (const std::size_t member : staying_) {
    const auto [device, host, disk] = taken_by(member);
    all = {all.device + device, all.host + host, all.disk + disk};
    note_shape(member);
  }
  for (const std::size_t member : finalists) {
    if (stays(member)) continue;
    const auto [device, host, disk] = taken_by(member);
    rebuilt = {std::max(rebuilt.device, device), std::max(rebuilt.host, host),
               std::max(rebuilt.disk, disk)};
    note_shape(member);
  }
  return all.device + rebuilt.device <= limit_->device && all.host + rebuilt.host <= limit_->host &&
         slots_.is_possible({largest, all.host + rebuilt.host, all.disk + rebuilt.disk});
}

void BuiltFinalists::choose(const std::vector<std::size_t>& finalists) {
  if (!limit_ || is_given_up_) return;
  std::vector<std::size_t> wanted = finalists;
  std::ranges::stable_partition(wanted, [&](std::size_t member) { return stays(member); });
  for (const std::size_t member : staying_)
    if (std::ranges::find(finalists, member) == finalists.end()) wanted.push_back(member);
  staying_.clear();
  for (const std::size_t member : wanted) {
    staying_.insert(member);
    if (!fit(finalists)) staying_.erase(member);
  }
}

Needs BuiltFinalists::needs_beside(std::size_t member) const {
  const PlannedExperiment& planned = scoreboard_.row(member).planned;
  Needs needs = needs_of(planned.experiment, planned.predicted);
  for (const std::size_t other : staying_) {
    if (other == member) continue;
    const Taken more = taken_by(other);
    needs.host_bytes += more.host;
    needs.disk_bytes += more.disk;
  }
  return needs;
}

}  // namespace dstune
