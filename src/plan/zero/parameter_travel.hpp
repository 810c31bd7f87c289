#pragma once
/// How the parameters of stage 3 travel: from the shards of all ranks to the places where they are
/// whole, in groups of pieces that are sent together.

#include <memory>
#include <span>
#include <vector>

#include "zero/parameter_places.hpp"

namespace dstune::plan {

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
  [[nodiscard]] Gather& way_of(const TravelGroup& group) const;
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
