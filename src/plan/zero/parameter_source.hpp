#pragma once
/// Whole parameters for the arithmetic: always there in stages 0 to 2, gathered module by module in
/// stage 3, as the schedule of gathers says.

#include <span>
#include <vector>

#include "zero/gathering.hpp"
#include "zero/shard_reader.hpp"

namespace dstune::plan {

class ParameterSource {
 public:
  /// `gathering`: at stage 3 only.
  ParameterSource(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
                  const PersistentTensors& tensors, const Gathering* gathering);

  /// Stage 3: the gathers of the micro-step that begins. `after_update`: the second partition holds
  /// the parameters of before it.
  void begin_micro_step(const MicroStepGathers& gathers, bool after_update);
  void end_micro_step();

  /// Parameters of these roles (the last may be missing) can be viewed from use to done. Calls come
  /// in the order in which the modules of the Hugging Face model would be run.
  void use(int unit, ParameterRole first, ParameterRole last) {
    if (traced_ != nullptr) use_pieces(find(unit, first, last));
  }
  void done(int unit, ParameterRole first, ParameterRole last) {
    if (traced_ != nullptr) done_pieces(find(unit, first, last));
  }

  /// Forward is run once more for backward. A module whose backward has begun goes on holding its
  /// parameters.
  void run_again(bool again) { again_ = again; }

  /// No view where the unit has no such parameter.
  [[nodiscard]] View view(int unit, ParameterRole role) const;

 private:
  /// A partition of the parameters: of all ranks that share the states, or the second one.
  struct Shards {
    TensorId tensor = no_tensor;
    int ranks = 1, rank = 0;
    RankRange among = {};
    int scale = 1;  ///< shards of the first that make up one of this
  };
  /// Pieces that travel together.
  struct Group {
    std::size_t first, count;  ///< of grouped_
    const Shards* from;
    /// Their shards, rank by rank, or with an all-reduce parameter by parameter; none where they
    /// travel to their places.
    TensorId flat;
    /// The own shard of a piece that travels to its place, fetched from the host; or what came from
    /// the other nodes.
    TensorId shard;
    TensorId codes, scales;  ///< of all ranks, where they travel quantised
    int event;               ///< none without overlap
    int unused;              ///< pieces that no module has asked for yet
    bool to_its_place;
    bool arrived;
  };

  [[nodiscard]] PieceRange find(int unit, ParameterRole first, ParameterRole last) const;
  void use_pieces(PieceRange pieces);
  void done_pieces(PieceRange pieces);
  void next_visit();
  void hold(int visit);
  [[nodiscard]] bool repeats(PieceRange pieces) const;
  void gather(std::span<const int> pieces);
  void gather_from(const Shards& shards, std::span<const int> pieces);
  void gather_group(const Shards& shards, std::span<const int> pieces);
  /// Until the next group is made.
  [[nodiscard]] std::span<const int> pieces_of(const Group& group) const {
    return std::span(grouped_).subspan(group.first, group.count);
  }
  void gather_to_its_place(Group& group);
  void gather_flat(Group& group);
  void gather_by_all_reduce(Group& group);
  void gather_quantized(Group& group);
  /// To its place, or to `flat`, of which there is none before.
  void dequantize(Group& group);
  [[nodiscard]] bool is_all_reduced(const Group& group) const;
  [[nodiscard]] std::int64_t shard_elements(const Group& group) const;
  /// The collectives: all shards of the group to `out`, from `own` and the other ranks.
  void gather_shards(const Group& group, View out, View own, Stream stream);
  /// Room for those of other nodes, where they come first.
  void acquire_from_nodes(Group& group);
  /// The own shards of the group's pieces, in memory by then, side by side to `out`.
  template <class Transfer>
  void collect(const Group& group, View out, Stream stream);
  void wait_for_fetched(Stream stream);
  void take(int piece);
  void arrive(Group& group);
  /// `is_held`: autograd keeps it for backward all the same.
  void release(int piece, bool is_held);
  /// Linear layers keep what a forward visit gathered, without memory_efficient_linear.
  [[nodiscard]] bool is_held(int visit, int piece) const;
  void let_go(int parameter);
  /// Into the second partition, from its place.
  void refresh(int piece);
  [[nodiscard]] std::int64_t shard_elements(const Shards& from, int piece) const {
    return layout_.piece_shard_elements(piece) * from.scale;
  }
  [[nodiscard]] View own_shard(const Shards& from, int piece) const {
    if (&from == &primary_) return reader_.shard(piece);
    return at(from.tensor, layout_.piece_shard_offset(piece) * from.scale);
  }
  [[nodiscard]] bool travels_to_its_place(int piece) const;
  /// Where a piece is whole; acquires that.
  View place(int piece);
  void fill_gaps(int parameter);

  [[nodiscard]] int parameter_of(int piece) const {
    return layout_.pieces()[static_cast<std::size_t>(piece)].parameter;
  }

  Emitter& emitter_;
  const Layout& layout_;
  Shards primary_, secondary_;
  TensorId kept_;
  bool overlap_;
  bool sequential_;
  bool all_reduces_;   // groups of several pieces
  bool holds_linear_;  // from forward to backward
  bool runs_again_;    // forward keeps nothing for backward before it is run again
  bool quantizes_;
  bool is_offloaded_;
  const TracedGathers* traced_;  // at stage 3 only
  ShardReader reader_;
  std::vector<bool> is_refreshed_;  // by piece: the second partition holds it as it is now

  const MicroStepGathers* gathers_ = nullptr;
  bool again_ = false;
  std::size_t next_ = 0;    // visit
  std::vector<int> uses_;   // by piece: still to come in the visit that uses it now
  std::vector<int> user_;   // by piece: the visit that uses it now, or none
  std::vector<int> users_;  // by visit: pieces still in use
  std::vector<int> group_;  // by piece: the group that it travels in, or none
  std::vector<Group> groups_;
  std::vector<int> grouped_;                 // pieces, group by group
  std::vector<TensorId> slabs_;              // by parameter
  std::vector<int> slab_pieces_;             // by parameter: pieces there or on their way
  std::vector<bool> is_placed_;              // by piece: counted there
  std::vector<std::vector<TensorId>> held_;  // by parameter: slabs that are released but held
};

}  // namespace dstune::plan
