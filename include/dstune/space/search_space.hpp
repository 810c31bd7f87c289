#pragma once
/// The space: the product of all lists of candidates, in document order, the last key fastest (of
/// the dimensions DeepSpeed lacks: group size slowest, then recompute fastest). A generator:
/// members are decoded from their number, so a space of millions costs nothing before it is looked
/// at. Local.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// One dimension: a place in the DeepSpeed config and its candidates.
struct Dimension {
  std::string
      pointer;  ///< JSON pointer in the DeepSpeed config; "" for the group's shape and recompute
  std::vector<json::Value> candidates;
};

/// A member before anybody asked whether it fits.
struct Member {
  Experiment experiment;
  bool is_pruned = false;
  std::string
      reason;  ///< why it is pruned: duplicate or twin of which, batch sizes that do not multiply
  int micro_batch_chain = -1;  ///< same number: differ only in a micro-batch size that is searched
};

class SearchSpace {
 public:
  /// Throws InputError: every candidate of every knob that is not valid (with its place), spaces in
  /// which no member satisfies train_batch_size, combinations that DeepSpeed refuses.
  explicit SearchSpace(const JobSpec& job);

  [[nodiscard]] const std::vector<Dimension>& dimensions() const { return dimensions_; }
  /// How many members the product has. 0 never happens.
  [[nodiscard]] std::uint64_t size() const;

  /// Visits the members from number 0 on, at most `limit` of them, in order; duplicates and twins
  /// are recognised among those visited. Visitor: bool(Member&&), false stops.
  template <class Visitor>
  void visit(std::uint64_t limit, Visitor&& visitor) const {
    Seen seen;
    for (std::uint64_t number = 0; number < size() && number < limit; ++number) {
      if (!visitor(member(number, seen))) return;
    }
  }
  /// All of them.
  [[nodiscard]] std::vector<Member> members() const;

 private:
  struct Seen {
    std::unordered_map<std::string, std::string>
        by_effect;  ///< what runs → the first member's name
    std::unordered_map<std::string, int> chains;
    std::unordered_map<std::string, int> names;
  };
  [[nodiscard]] Member member(std::uint64_t number, Seen& seen) const;

  const JobSpec* job_;
  std::vector<Dimension> dimensions_;
};

/// DeepSpeed's canonical name of a configuration (facts in docs/space.md): walks `config` in
/// document order; `keys` are the tuning keys' last path parts, to which the micro-batch and the
/// accumulation steps always belong.
std::string canonical_name(const json::Value& config, const std::vector<std::string>& keys,
                           const std::string& prefix, bool omit_values);

/// The batch triple by DeepSpeed's rules: absent values are derived. Throws InputError-free:
/// returns nothing where DeepSpeed asserts, with its words in `why`.
struct BatchTriple {
  std::int64_t train_batch_size, micro_batch, accumulation_steps;
};
std::optional<BatchTriple> resolve_batch(std::optional<std::int64_t> train_batch_size,
                                         std::optional<std::int64_t> micro_batch,
                                         std::optional<std::int64_t> accumulation_steps,
                                         std::int64_t group_size, std::string& why);

}  // namespace dstune
