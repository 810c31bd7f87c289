#pragma once
/// The space: the product of all lists of candidates, in document order, the last key fastest (of
/// the dimensions DeepSpeed lacks: group size slowest, recompute fastest). If `fast` is off, there
/// is one product for each ZeRO stage, one after the other. A generator: members are decoded from
/// their number, so a space of millions costs nothing before it is looked at. Local.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "dstune/space/job_spec.hpp"

namespace dstune {

/// The batch triple by DeepSpeed's rules: absent values are derived. Nothing where DeepSpeed
/// asserts, with the reason in `why`.
struct BatchTriple {
  std::int64_t train_batch_size, micro_batch, accumulation_steps;
};
std::optional<BatchTriple> resolve_batch(std::optional<std::int64_t> train_batch_size,
                                         std::optional<std::int64_t> micro_batch,
                                         std::optional<std::int64_t> accumulation_steps,
                                         std::int64_t group_size, std::string& why);

/// Batch sizes as somebody wrote them, and the ranks that share a batch; nothing: not known.
struct WrittenBatch {
  std::optional<std::int64_t> train_batch_size, micro_batch, accumulation_steps, ranks;
};
/// Says how they contradict DeepSpeed's rule: "256 is no multiple of
/// train_micro_batch_size_per_gpu 2 x 7 ranks". Empty where they do not.
std::string contradiction_of(const WrittenBatch& written);
/// The nearest that would do, for where they contradict it: ": write 252 or 266, or train on 8
/// ranks".
std::string batch_advice(const WrittenBatch& written);

/// A member before anybody asked whether it fits.
struct Member {
  std::uint64_t number = 0;
  std::string name;
  GroupShape shape;
  TrainingConfig config;
  std::int64_t train_batch_size = 0;
  bool is_pruned = false;
  PruneKind prune_kind = PruneKind::refused;  ///< where it is pruned
  /// The reason for pruning: a duplicate or twin of another by something, batch sizes that do not
  /// multiply, a combination that DeepSpeed refuses, a key that is not built.
  std::string reason;
  /// The members up to a depth are a product of shorter lists, which cover what decides about
  /// memory before all else; 0: the first candidate of every list.
  std::uint32_t depth = 0;
  /// Equal: they differ only in a micro-batch size that is searched.
  std::optional<std::uint64_t> micro_batch_chain;
  bool has_other_name = false;  ///< its own would be that of an earlier member, too
};

struct SpaceParts;

class SearchSpace {
 public:
  /// `job` outlives it. Throws InputError with what expand() finds; read_job() has thrown it
  /// before.
  explicit SearchSpace(const JobSpec& job);
  ~SearchSpace();

  /// How many members the products have. 0 never happens.
  [[nodiscard]] std::uint64_t size() const;

  /// Likewise with no more than the first of the micro-batches that nobody wrote: those that are
  /// searched.
  [[nodiscard]] std::uint64_t size_without_search() const;

  /// JSON pointers in the DeepSpeed config of all that is searched, in document order. A batch size
  /// that follows from others is none of them.
  [[nodiscard]] std::vector<std::string> searched() const;

  /// Visits the members from number 0 on, at most `limit` of them, in order; duplicates and twins
  /// are recognised among those visited. Visitor: false stops.
  void visit(std::uint64_t limit, const std::function<bool(Member&&)>& visitor) const;
  /// All of them.
  [[nodiscard]] std::vector<Member> members() const;

  /// A visited member with its DeepSpeed config.
  [[nodiscard]] Experiment experiment(const Member& member) const;

 private:
  friend class MemberMaker;
  class Visit;

  const JobSpec* job_;
  std::shared_ptr<const SpaceParts> parts_;
};

/// Makes the members of a space by their numbers, when somebody looks at them. It outlives the
/// space and its job. Copies share what they hold; for one thread at a time.
class MemberMaker {
 public:
  explicit MemberMaker(const SearchSpace& space);

  /// SearchSpace's experiment of a member; its name is not yet told apart from others.
  [[nodiscard]] Experiment experiment(std::uint64_t number) const;
  // As Member's.
  [[nodiscard]] GroupShape shape(std::uint64_t number) const;
  [[nodiscard]] std::optional<std::uint64_t> micro_batch_chain(std::uint64_t number) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// DeepSpeed's canonical name of a configuration (facts in docs/space.md): it walks `config` in
/// document order. `keys` are the tuning keys' last path parts; the micro-batch and the
/// accumulation steps always belong to them.
std::string canonical_name(const json::Value& config, const std::vector<std::string>& keys,
                           const std::string& prefix, bool omit_values);

}  // namespace dstune
