#pragma once
/// The members that a race would run next, for several reasons. Local.

#include <cstddef>
#include <set>

#include "dstune/core/job.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/core/policy.hpp"
#include "dstune/search/planner.hpp"
#include "features.hpp"
#include "neighbours.hpp"
#include "race_beliefs.hpp"
#include "race_entrants.hpp"
#include "race_memory.hpp"

namespace dstune {

/// Asked only where an entrant waits.
class RaceChoice {
 public:
  /// `is_short`: few trials are allowed. All that it is given outlives it.
  RaceChoice(const PlannedSpace& space, const TuningOptions& options, bool is_short,
             const RaceEntrants& entrants, const Features& features, const Neighbours& neighbours,
             const RaceBeliefs& beliefs, const RaceMemory& memory)
      : is_unplanned_(space.is_unplanned),
        is_short_(is_short),
        metric_(options.metric),
        as_different_(options.policy->race.as_different),
        entrants_(entrants),
        features_(features),
        neighbours_(neighbours),
        beliefs_(beliefs),
        memory_(memory) {}

  /// Nothing is known: what is predicted to be best, or drawn from the seed; rather what shares
  /// little with what runs or has failed.
  [[nodiscard]] std::size_t first() const;
  /// Least like what was run before, so that beliefs are tested everywhere.
  [[nodiscard]] std::size_t most_different() const;
  /// The member that is likeliest to be better (Kushner 1964): that ends a search soonest. The size
  /// of the gain does not count; most_different() tries uncertain members. It does count if nothing
  /// was planned, since beliefs are wide. It also counts if few trials are allowed, since nothing
  /// corrects a small step.
  [[nodiscard]] std::size_t likeliest() const;

 private:
  template <class Score>
  [[nodiscard]] std::size_t most_promising(const Score& score_of) const;
  /// Calls it with each place that runs or has ended.
  template <class Visit>
  void for_each_begun(const Visit& visit) const;
  [[nodiscard]] double expected_step(std::size_t place) const;

  bool is_unplanned_, is_short_;
  Metric metric_;
  double as_different_;
  const RaceEntrants& entrants_;
  const Features& features_;
  const Neighbours& neighbours_;
  const RaceBeliefs& beliefs_;
  const RaceMemory& memory_;
};

}  // namespace dstune
