#pragma once
/// The parameters of stage 3. Where they lie: the own shards of them, and those that are whole for
/// now. How they travel: from the shards of all ranks to the places where they are whole, in groups
/// of pieces that are sent together.

#include <memory>
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
  /// Without a tensor where there is none.
  [[nodiscard]] const Shards& secondary() const { return secondary_; }
  [[nodiscard]] bool are_on_host() const { return are_on_host_; }
  [[nodiscard]] std::int64_t elements(const Shards& from, int piece) const {
    return layout_.piece_shard_elements(piece) * from.scale;
  }
  /// In memory.
  [[nodiscard]] View shard(const Shards& from, int piece) const {
    if (&from == &primary_) return reader_.shard(piece);
    return at(from.tensor, layout_.piece_shard_offset(piece) * from.scale);
  }

  /// `count` elements between a shard's memory and the device.
  void transfer(View to, View from, std::int64_t count, Stream stream) const;
  /// The shards of these pieces side by side.
  void collect(const Shards& from, std::span<const int> pieces, View out, Stream stream) const;
  ShardReader& reader() { return reader_; }

 private:
  Shards primary_, secondary_;
  bool are_on_host_;
  ShardReader reader_;
};

/// Whole parameters: kept from their first use on, or in a slab for each parameter of ours, from
/// the gather of its first piece to the release of its last.
class WholeParameters : ZeroPart {
 public:
  WholeParameters(const ZeroContext& zero, const TracedGathers& traced);

  /// Where a piece is whole; acquires that.
  View place(int piece);
  /// Whether the shards of all ranks, the last one's padding included, may arrive there themselves.
  [[nodiscard]] bool takes_shards(int piece) const;
  /// In a slab, or on its way there; what is kept never is.
  [[nodiscard]] bool is_in_slab(int piece) const {
    return is_in_slab_[static_cast<std::size_t>(piece)];
  }
  /// Copies pieces that are kept into the slab of their parameter, of which others are there.
  void fill_gaps(int parameter);
  /// `is_held`: autograd keeps it for backward all the same.
  void release(int piece, bool is_held);
  /// What autograd kept.
  void let_go(int parameter);
  [[nodiscard]] bool is_any_held() const;
  /// A parameter all of whose pieces are there.
  [[nodiscard]] View view(int parameter) const;

 private:
  [[nodiscard]] bool is_one_piece(int parameter) const {
    return layout_.piece_begin(parameter + 1) - layout_.piece_begin(parameter) == 1;
  }
  [[nodiscard]] View kept(int piece) const {
    return at(tensors_.kept, traced_.kept_offset[static_cast<std::size_t>(piece)]);
  }

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
  std::span<const int> pieces;
  const Shards* from;
  std::int64_t shard_elements;  ///< of a rank
  bool to_its_place;            ///< one piece, whose place takes the shards themselves
  /// Shards of all ranks, rank by rank, or with an all-reduce piece by piece; none where they
  /// travel to their places.
  TensorId flat = no_tensor;
  /// Released on arrival: own shards that were put side by side or fetched from the host, and what
  /// came from other nodes.
  TensorId own = no_tensor, from_nodes = no_tensor;
  TensorId codes = no_tensor,
           scales = no_tensor;  ///< of all ranks, where they travel quantised
};

/// One way of travelling.
class Gather {
 public:
  virtual ~Gather() = default;
  /// The group sets out, beside compute where communication overlaps.
  virtual void send(TravelGroup& group) = 0;
  /// Compute has waited for it: its pieces go to their places.
  virtual void put_away(TravelGroup& group) = 0;
};

class ParameterTravel : ZeroPart {
 public:
  ParameterTravel(const ZeroContext& zero, WholeParameters& whole);
  ~ParameterTravel();

  /// `after_update`: the second partition holds the parameters of before it.
  void begin_micro_step(bool after_update);
  /// Shards set out from the disk.
  void read(std::span<const ShardRead> reads) { shards_.reader().read(reads); }
  /// These pieces set out, as one group or each alone; where some are in the second partition, too,
  /// those apart. The pieces outlive the micro-step.
  void gather(std::span<const int> pieces);
  /// A piece is asked for: if it is on its way, it arrives.
  void take(int piece);
  /// A piece that is whole, in a slab, goes into the second partition where that has it not yet.
  void refresh_secondary(int piece);

 private:
  struct Sent {
    TravelGroup group;
    Gather* way;
    int event;   // none without overlap
    int unused;  // pieces that no module has asked for yet
    bool has_arrived = false;
  };

  void gather_from(const Shards& from, std::span<const int> pieces);
  void send(const Shards& from, std::span<const int> pieces);
  [[nodiscard]] Gather& transport_of(const TravelGroup& group) const;
  void arrive(Sent& sent);

  WholeParameters& whole_;
  OwnShards shards_;
  bool overlap_;
  bool one_by_one_;
  std::unique_ptr<Gather> to_its_place_, side_by_side_;
  std::unique_ptr<Gather> by_all_reduce_;  // none: groups of several pieces travel side by side
  std::unique_ptr<Gather> quantized_;      // none: nothing travels quantised

  std::vector<bool> is_refreshed_;        // by piece: the second partition holds it as it is now
  std::vector<int> sent_of_;              // by piece: of sent_, or none
  std::vector<Sent> sent_;                // of the micro-step
  std::vector<std::vector<int>> parted_;  // pieces that were parted by their partitions
};

}  // namespace dstune::plan
