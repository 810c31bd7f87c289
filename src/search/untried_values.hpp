#pragma once
/// Values next to the best of a race that nobody has tried: a prediction alone does not exclude
/// them (docs/inside/search.md, race). Local.

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "dstune/core/policy.hpp"
#include "neighbours.hpp"
#include "race_beliefs.hpp"
#include "race_entrants.hpp"
#include "race_memory.hpp"

namespace dstune {

/// Asked only where the beliefs have a best one.
class UntriedValues {
 public:
  using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

  /// `pairs`: of knobs that act together. All that it is given outlives it.
  UntriedValues(const RaceEntrants& entrants, const Neighbours& neighbours, const Pairs& pairs,
                const RaceBeliefs& beliefs, const RaceMemory& memory, const Policy& policy)
      : entrants_(entrants),
        neighbours_(neighbours),
        pairs_(pairs),
        beliefs_(beliefs),
        memory_(memory),
        policy_(policy.race),
        relevant_gain_(policy.answering.relevant_gain) {}

  /// A member that waits and has a value of a knob, or values of two knobs that act together, that
  /// were not tried near the best one. Nothing where none is left.
  [[nodiscard]] std::optional<std::size_t> next() const;
  /// How many values and pairs are left for that.
  [[nodiscard]] std::size_t count() const;

 private:
  [[nodiscard]] std::vector<KnobChoice> knob_values_next_to_best() const;
  [[nodiscard]] std::vector<KnobChoice> pairs_next_to_best() const;
  [[nodiscard]] std::optional<std::size_t> untried_below_limit() const;
  [[nodiscard]] std::optional<std::size_t> untried_with(const KnobChoice& values) const;
  [[nodiscard]] bool could_win(std::size_t place) const;
  [[nodiscard]] bool is_together(std::size_t one, std::size_t other,
                                 const KnobChoice& values) const;
  [[nodiscard]] bool is_unpredicted_pair(const KnobChoice& values) const;
  [[nodiscard]] bool is_excluded(std::size_t place, const KnobChoice& values) const;

  [[nodiscard]] std::size_t best() const { return *beliefs_.best(); }
  [[nodiscard]] const std::vector<Sample>& samples() const { return beliefs_.samples(); }

  const RaceEntrants& entrants_;
  const Neighbours& neighbours_;
  const Pairs& pairs_;
  const RaceBeliefs& beliefs_;
  const RaceMemory& memory_;
  const Policy::Race& policy_;
  double relevant_gain_;
};

}  // namespace dstune
