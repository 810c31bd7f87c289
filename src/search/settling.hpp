#pragma once
/// Settles what follows of all members once each is planned: counts, smaller sizes in the place of
/// an integer, and the baseline. Local.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "dstune/search/planner.hpp"

namespace dstune {

void count(PlannedSpace& planned, const PlannedExperiment& member);
void count_pruned(PlannedSpace& planned, PruneKind kind, std::uint64_t number = 1);

/// True for a member that does what the training command trains today, as far as that is known. A
/// size that is searched is chosen later.
[[nodiscard]] bool is_of_today(const JobSpec& job, const Experiment& experiment, bool is_searched);

/// Smaller micro-batches are out where the config's own fits; where only runs tell, they will.
/// Says where smaller ones take its place.
void settle_smaller_sizes(const JobSpec& job, PlannedSpace& planned);

/// A member that can run, as a baseline: what the command trains comes first, and of that what runs
/// on as many ranks; then the space's order.
struct PossibleBaseline {
  bool is_other_than_today = true;
  bool has_other_ranks = false;  ///< than the command, of which it is
  std::uint64_t number = 0;
  std::size_t member = 0;
  auto operator<=>(const PossibleBaseline&) const = default;
};

/// Chooses the baseline among all that can run, whatever the cap of trials.
void settle_baseline(const JobSpec& job, std::vector<PossibleBaseline> possible,
                     PlannedSpace& planned);

}  // namespace dstune
