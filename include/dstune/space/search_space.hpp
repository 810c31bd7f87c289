#pragma once
/// The space: the product of all lists of candidates, in document order, the last key fastest (of
/// the dimensions DeepSpeed lacks: group size slowest, then recompute fastest). A generator:
/// members are decoded from their number, so a space of millions costs nothing before it is looked
/// at. Local.

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// One dimension: a place in the DeepSpeed config and its candidates, at least one.
struct Dimension {
  enum class Kind { knob, train_batch_size, micro_batch, accumulation_steps, shape, recompute };
  Kind kind = Kind::knob;
  /// JSON pointer in the DeepSpeed config; "" for the group's shape and recompute.
  std::string pointer;
  /// null for a batch size that is derived. Shapes are {num_gpus, num_nodes}, recompute is its
  /// word.
  std::vector<json::Value> candidates;
  std::vector<std::string> origins;  ///< JSON pointer of each candidate in the document
};

/// Dimensions of a job in the order in which they vary, slowest first.
struct Expansion {
  std::vector<Dimension> dimensions;
  json::Value base;  ///< the DeepSpeed config with each dimension's first candidate
  bool is_micro_batch_searched = false;  ///< its candidates are ours, not the user's
};

/// Finds the dimensions and checks every candidate by itself: a problem that a value has in every
/// member tried with it is the input's; what DeepSpeed refuses only in combination is left to the
/// members. Adds problems with the place of the candidate.
Expansion expand(const JobSpec& job, json::Problems& problems);

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
  /// `job` outlives it. Throws InputError with what expand() finds; read_job() has thrown it
  /// before.
  explicit SearchSpace(const JobSpec& job);

  [[nodiscard]] const std::vector<Dimension>& dimensions() const { return expansion_.dimensions; }
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
  /// What the knobs of a member say, whatever its batch sizes, shape and recompute.
  struct Knobs {
    TrainingConfig config;
    std::string refusal;  ///< why DeepSpeed refuses the combination
  };
  struct Effect {
    TrainingConfig config;
    GroupShape shape;
    std::string name;  ///< of the first member that runs so
  };
  struct Seen {
    std::unordered_map<std::uint64_t, Knobs> knobs;                  ///< by the knobs' number
    std::unordered_map<std::size_t, std::vector<Effect>> by_effect;  ///< what runs, hashed
    std::unordered_map<std::uint64_t, int> chains;
    std::unordered_set<std::string> names;
  };
  using Indices = std::vector<std::size_t>;

  [[nodiscard]] Member member(std::uint64_t number, Seen& seen) const;
  [[nodiscard]] Indices decode(std::uint64_t number) const;
  [[nodiscard]] const Knobs& knobs_of(const Indices& indices, const json::Value& ds_config,
                                      Seen& seen) const;
  void decide_batch(const Indices& indices, Member& member) const;
  [[nodiscard]] std::string name_of(const Experiment& experiment, Seen& seen) const;
  void prune_twin(Member& member, Seen& seen) const;

  const JobSpec* job_;
  Expansion expansion_;
  std::vector<json::Value::json_pointer> places_;  ///< of the dimensions
  std::vector<std::uint64_t> strides_;             ///< how far one step of a dimension goes
  std::vector<std::string> name_keys_;  ///< last parts of what differs beside batch, stage
  bool has_short_names_ = true;
};

/// DeepSpeed's canonical name of a configuration (facts in docs/space.md): walks `config` in
/// document order; `keys` are the tuning keys' last path parts, to which the micro-batch and the
/// accumulation steps always belong.
std::string canonical_name(const json::Value& config, const std::vector<std::string>& keys,
                           const std::string& prefix, bool omit_values);

/// The batch triple by DeepSpeed's rules: absent values are derived. Nothing where DeepSpeed
/// asserts, with the reason in `why`.
struct BatchTriple {
  std::int64_t train_batch_size, micro_batch, accumulation_steps;
};
std::optional<BatchTriple> resolve_batch(std::optional<std::int64_t> train_batch_size,
                                         std::optional<std::int64_t> micro_batch,
                                         std::optional<std::int64_t> accumulation_steps,
                                         std::int64_t group_size, std::string& why);

}  // namespace dstune
