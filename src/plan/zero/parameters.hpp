#pragma once
/// Whole parameters for the arithmetic. In stages 0 to 2 they are always there. In stage 3: where
/// they lie, the own shards of them and those that are whole for now; how they travel from the
/// shards of all ranks to the places where they are whole, in groups of pieces that are sent
/// together; and when they do, module by module, as the schedule of gathers says.

#include <optional>
#include <span>
#include <vector>

#include "zero/disk.hpp"

namespace dstune::plan {

/// A partition of the parameters: of all ranks that share the states, or hpZ's second one.
struct Shards {
  TensorId tensor = no_tensor;
  int ranks = 1, rank = 0;
  RankRange among = {};
  int scale = 1;  ///< shards of the first that make up one of this
};

/// The own shards: on the device or, offloaded, on the host or a disk, from which they are read
/// into buffers of the host.
class OwnShards : ZeroPart {
 public:
  explicit OwnShards(const ZeroContext& zero);

  [[nodiscard]] const Shards& primary() const { return primary_; }
  /// It has no tensor if there is no second partition.
  [[nodiscard]] const Shards& secondary() const { return secondary_; }
  [[nodiscard]] bool are_on_host() const { return are_on_host_; }
  [[nodiscard]] std::int64_t elements(const Shards& from, int piece) const {
    return layout_.piece_shard_elements(piece) * from.scale;
  }
  /// In memory.
  [[nodiscard]] View shard(const Shards& from, int piece) const {
    if (&from == &primary_) return primary_shard(piece);
    return at(from.tensor, layout_.piece_shard_offset(piece) * from.scale);
  }

  /// `count` elements between a shard's memory and the device.
  void transfer(View to, View from, std::int64_t count, Stream stream) const;
  /// The shards of these pieces side by side.
  void collect(const Shards& from, std::span<const int> pieces, View out, Stream stream) const;

  /// Shards set out from the disk, as the schedule of gathers says, behind what uses the buffers so
  /// far.
  void read(std::span<const ShardRead> reads);
  /// Compute goes on when the shards of these pieces are in memory, and with them, as in DeepSpeed,
  /// everything that is on its way.
  void wait_for(std::span<const int> pieces);

 private:
  [[nodiscard]] View primary_shard(int piece) const {
    const View place = tensors_.shard(piece);
    return tensors_.is_on_disk(place) ? at(buffer_[piece]) : place;
  }

  Shards primary_, secondary_;
  bool are_on_host_;
  bool copies_beside_compute_;     // those of what is read
  std::vector<TensorId> buffer_;   // by piece, of those on the disk
  std::vector<int> on_their_way_;  // pieces
  int event_ = 0;                  // of the last read
};

/// Whole parameters: kept from their first use on, or in a slab for each parameter of ours, from
/// the gather of its first piece to the release of its last.
class WholeParameters : ZeroPart {
 public:
  WholeParameters(const ZeroContext& zero, const TracedGathers& traced);

  /// Acquires the tensor in which a piece is whole, and returns its view.
  View place(int piece);
  /// Tells whether the shards of all ranks, the last one's padding included, may arrive there
  /// themselves.
  [[nodiscard]] bool takes_shards(int piece) const;
  /// In a slab, or on its way there; what is kept never is.
  [[nodiscard]] bool is_in_slab(int piece) const { return is_in_slab_[piece]; }
  /// Copies pieces that are kept into the slab of their parameter, of which others are there.
  void fill_gaps(int parameter);
  /// `is_held`: autograd keeps it for backward all the same.
  void release(int piece, bool is_held);
  /// Releases the tensors that autograd kept of a parameter.
  void let_go(int parameter);
  [[nodiscard]] bool is_any_held() const;
  /// A parameter all of whose pieces are there.
  [[nodiscard]] View view(int parameter) const;

 private:
  [[nodiscard]] bool is_one_piece(int parameter) const {
    return layout_.piece_begin(parameter + 1) - layout_.piece_begin(parameter) == 1;
  }
  [[nodiscard]] View kept(int piece) const { return at(tensors_.kept, traced_.kept_offset[piece]); }

  const TracedGathers& traced_;
  std::vector<bool> is_in_slab_;  // by piece
  struct Slab {
    TensorId tensor = no_tensor;
    int pieces = 0;              // there or on their way
    std::vector<TensorId> held;  // released but held
  };
  std::vector<Slab> slabs_;  // by parameter
};

/// Pieces that travel together.
struct TravelGroup {
  enum class Way {
    to_its_place,   ///< one piece, from all ranks to where it is whole
    side_by_side,   ///< one call for all pieces, which needs the own shards side by side
    by_all_reduce,  ///< stage3_use_all_reduce_for_fetch_params: each rank adds its shards to zeros
    quantized,      ///< ZeRO++'s zero_quantized_weights: codes of 8 bits and scales
  };
  std::span<const int> pieces;
  const Shards* from;
  std::int64_t shard_elements;  ///< of a rank
  bool to_its_place;            ///< one piece, whose place takes the shards themselves
  Way way = Way::side_by_side;
  /// Shards of all ranks, rank by rank, or with an all-reduce piece by piece; none where they
  /// travel to their places.
  TensorId flat = no_tensor;
  /// Released on arrival: own shards that were put side by side or fetched from the host, and what
  /// came from other nodes.
  TensorId own = no_tensor, from_nodes = no_tensor;
  TensorId codes = no_tensor, scales = no_tensor;  ///< of all ranks, where they travel quantised
  int event = -1;  ///< of their arrival, where communication overlaps
  int unused = 0;  ///< pieces that no module has asked for yet
  bool has_arrived = false;
};

class ParameterTravel : ZeroPart {
 public:
  ParameterTravel(const ZeroContext& zero, WholeParameters& whole);

  /// `after_update`: the second partition holds the parameters of before it.
  void begin_micro_step(bool after_update);
  void read(std::span<const ShardRead> reads) { shards_.read(reads); }
  /// These pieces set out, as one group or each alone; where some are in the second partition, too,
  /// those apart. The pieces outlive the micro-step.
  void gather(std::span<const int> pieces);
  /// A piece is asked for: if it is on its way, it arrives.
  void take(int piece);
  /// A piece that is whole, in a slab, goes into the second partition where that has it not yet.
  void refresh_secondary(int piece);

 private:
  static constexpr int nothing = -1;

  void gather_from(const Shards& from, std::span<const int> pieces);
  /// The group sets out, beside compute where communication overlaps.
  void send(const Shards& from, std::span<const int> pieces);
  [[nodiscard]] TravelGroup::Way way_of(const TravelGroup& group) const;
  void send_to_its_place(TravelGroup& group);
  void send_side_by_side(TravelGroup& group);
  void send_by_all_reduce(TravelGroup& group);
  void send_quantized(TravelGroup& group);
  /// Compute waits for it and its pieces go to their places.
  void arrive(TravelGroup& group);
  void unpack(const TravelGroup& group);
  void unpack_all_reduced(const TravelGroup& group);
  void dequantize(TravelGroup& group);

  TensorId acquire(const char* name, DType type, std::int64_t elements) {
    return emitter_.acquire(name, -1, Category::gathered, type, elements);
  }
  [[nodiscard]] Stream begin() {
    return emitter_.begin_beside(config_.overlap_comm, Stream::gather);
  }
  /// Shards that lie on the host go through a tensor of their own where other ranks' follow.
  [[nodiscard]] bool fetches(const TravelGroup& group) const {
    return shards_.are_on_host() && group.from->ranks > 1;
  }
  void wait_for_fetched(Stream stream);
  /// Room for what comes from other nodes, where it comes first.
  [[nodiscard]] TensorId acquire_from_nodes(std::int64_t shard_elements);
  void all_gather(const TravelGroup& group, View out, View own, Stream stream);

  WholeParameters& whole_;
  OwnShards shards_;
  bool one_by_one_;

  std::vector<bool> is_refreshed_;        // by piece: the second partition holds it as it is now
  std::vector<int> sent_of_;              // by piece: of sent_, or nothing
  std::vector<TravelGroup> sent_;         // of the micro-step
  std::vector<std::vector<int>> parted_;  // pieces that were parted by their partitions
};

/// Plays the modules' visits of a micro-step as the arithmetic asks for parameters: what each of
/// them gathers and releases.
class ParameterSource : ZeroPart {
 public:
  /// `gathering`: at stage 3 only.
  ParameterSource(const ZeroContext& zero, const Gathering* gathering);

  /// Stage 3: the gathers of the micro-step that begins. `after_update`: the second partition holds
  /// the parameters of before it.
  void begin_micro_step(const MicroStepGathers& gathers, bool after_update);
  void end_micro_step() const;

  /// Parameters of these roles (the last may be missing) can be viewed from use to done. Calls come
  /// in the order in which the modules of the Hugging Face model would be run.
  void use(int unit, ParameterRole first, ParameterRole last);
  void done(int unit, ParameterRole first, ParameterRole last);

  /// Forward is run once more for backward. A module whose backward has begun goes on holding its
  /// parameters.
  void run_again(bool again) { again_ = again; }

  /// No view where the unit has no such parameter.
  [[nodiscard]] View view(int unit, ParameterRole role) const;

 private:
  static constexpr int none = -1;

  [[nodiscard]] PieceRange find(int unit, ParameterRole first, ParameterRole last) const;
  void next_visit();
  void hold(int visit);
  [[nodiscard]] bool repeats(PieceRange pieces) const;
  void release(int visit);
  /// Linear layers keep what a forward visit gathered, without memory_efficient_linear.
  [[nodiscard]] bool is_held(const Visit& visit, int piece) const;

  const ModuleTrace* trace_ = nullptr;  // none where nothing is gathered
  std::optional<WholeParameters> whole_;
  std::optional<ParameterTravel> travel_;

  const MicroStepGathers* gathers_ = nullptr;
  bool again_ = false;
  std::size_t next_ = 0;    // visit
  std::vector<int> uses_;   // by piece: still to come in the visit that uses it now
  std::vector<int> user_;   // by piece: the visit that uses it now, or none
  std::vector<int> users_;  // by visit: pieces still in use
};

}  // namespace dstune::plan
