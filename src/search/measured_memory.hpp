#pragma once
/// Predicts members' memory from the measured memory of others, if nothing is planned. Local.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "dstune/core/policy.hpp"
#include "dstune/search/planner.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {

/// Tells whether one takes no less memory than the other on a group of the same shape, whatever the
/// model. They differ, if at all, by a larger micro-batch, more accumulation, larger buckets or
/// less recompute. They differ in no key that nobody here knows.
[[nodiscard]] bool surely_needs_no_less(const Experiment& one, const Experiment& other);

/// The DeepSpeed config without what surely_needs_no_less() compares by amount.
[[nodiscard]] json::Value config_without_amounts(const Experiment& experiment);

class MeasuredMemory {
 public:
  /// The space outlives it.
  explicit MeasuredMemory(const PlannedSpace& space,
                          const Policy::Memory& policy = default_policy().memory)
      : space_(&space), policy_(&policy) {}

  /// Any number of times of a member, in any order.
  void observe(std::size_t member, const Observation& observation);
  /// Says why a member surely runs out of memory; empty if that is not known.
  ///
  /// The two largest of three sizes of a configuration say how much each further sample takes at
  /// least. Activations, and the rest that does not grow beside them, add up to a convex function.
  /// One size of another configuration that keeps samples alike is enough then. That holds up to
  /// twice the largest size; larger sizes take no less. If nobody says how much memory there is,
  /// members that ran out of it say so.
  [[nodiscard]] std::string refusal(std::size_t member) const;
  /// Tells whether another size of the member's configuration says more. If none of them has run,
  /// that is the size that ran of others. Between a size that ran and one that ran out of memory it
  /// is the middle.
  [[nodiscard]] bool is_beyond_middle(std::size_t member) const;

 private:
  /// Micro-batches of a chain: the largest that ran, the smallest that ran out of memory.
  struct Room {
    std::int64_t ran = 0, ran_out = INT64_MAX;
  };
  /// A size that ran.
  struct Size {
    std::int64_t micro_batch = 0;
    std::int64_t bytes = 0;
    std::size_t member = 0;
  };
  /// Sizes of one configuration, by rising micro-batch.
  using Ladder = std::vector<Size>;

  void note_room(std::size_t member, const Observation& observation);

  /// Bytes of a larger size than those of the ladder, at least; 0 if that is not known.
  [[nodiscard]] double bytes_above(const Ladder& ladder, std::int64_t micro_batch) const;
  [[nodiscard]] double bytes_a_sample(const Ladder& ladder) const;
  /// 0: nobody knows.
  [[nodiscard]] std::int64_t known_limit_bytes() const;

  const PlannedSpace* space_;
  const Policy::Memory* policy_;
  std::vector<std::size_t> ran_out_;
  std::vector<Ladder> ladders_;
  std::unordered_map<std::uint64_t, Room> rooms_;  ///< by chain
  std::map<Recompute, std::int64_t> ran_with_;     ///< the largest micro-batch, of all chains
};

}  // namespace dstune
