#pragma once
/// What DeepSpeed's stage 3 gathers and releases at each module of a micro-step, and how far ahead:
/// its coordinator, played through on numbers alone.

#include <cstdint>
#include <string>
#include <vector>

#include "module_trace.hpp"

namespace dstune::plan {

/// A shard comes from the disk into a buffer.
struct ShardRead {
  int piece, buffer;
};

/// What happens at one visit; pieces in the flat order.
struct VisitGathers {
  std::vector<ShardRead> read;  ///< before what is fetched is gathered, which waits for all reads
  std::vector<int> fetched;     ///< gathered now, because they are needed now
  std::vector<int> prefetched;  ///< gathered for later modules, after the needed ones are there
  std::vector<ShardRead> read_ahead;  ///< then, for gathers that come after those
  std::vector<int> released;          ///< when the visit is over
};
using MicroStepGathers = std::vector<VisitGathers>;  ///< by visit

struct GatherLimits {
  std::int64_t prefetch_bucket = 0, max_live = 0, max_reuse = 0;  ///< elements
};

/// Shards on a disk, each of which takes a buffer from its reading until its piece is released.
struct ShardBuffers {
  std::vector<bool> on_disk;  ///< by piece; none: no shard is
  std::int64_t count = 0;
};

class GatherSchedule {
 public:
  /// `kept`: of each piece, whether it stays whole once it has been gathered. All outlive this.
  GatherSchedule(const ModuleTrace& trace, const std::vector<Piece>& pieces,
                 const std::vector<bool>& kept, GatherLimits limits, ShardBuffers buffers = {});

  /// The first micro-step of all: nothing is gathered ahead, nothing stays.
  MicroStepGathers trace_micro_step();
  /// The next one. What is released when is decided in the first of these and holds from then on.
  MicroStepGathers micro_step();
  /// The update has gathered what is kept and released everything else.
  void update();
  /// Why DeepSpeed's buffers do not do; empty where they do. What was planned holds no more then.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  enum class Status : std::uint8_t { partitioned, in_flight, available };

  void begin();
  void fetch(const Visit& visit, VisitGathers& gathers);
  void prefetch(const Visit& visit, VisitGathers& gathers);
  void read_ahead(VisitGathers& gathers);
  void take_buffer(int piece, std::vector<ShardRead>& reads);
  void free_buffer(int piece);
  /// Its shard is on the disk and neither in a buffer nor on its way there.
  [[nodiscard]] bool is_absent(int piece) const;
  void release(int visit, VisitGathers& gathers, bool even_kept);
  void release_piece(int piece, VisitGathers& gathers);
  [[nodiscard]] bool stays(int visit, int piece) const;
  [[nodiscard]] bool is_reused(const Visit& visit, int piece) const;
  [[nodiscard]] std::int64_t elements(int piece) const {
    return pieces_[static_cast<std::size_t>(piece)].elements;
  }

  /// Where pieces occur in the trace: by visit, of modules' own parameters, or with their
  /// children's.
  struct Occurrences {
    std::vector<int> begin;                     // by piece, into `visits`
    std::vector<int> visits;                    // ascending
    std::vector<std::int64_t> elements_before;  // by visit: of all visits before it
  };
  [[nodiscard]] Occurrences find_occurrences(bool with_children) const;

  const ModuleTrace& trace_;
  const std::vector<Piece>& pieces_;
  const std::vector<bool>& kept_;
  GatherLimits limits_;
  Occurrences own_, all_;

  std::vector<Status> status_;    // by piece
  std::vector<int> fetched_for_;  // by piece: the latest visit that it was taken off the queue for
  int step_ = 0;                  // visits fetched so far
  std::int64_t live_ = 0;
  struct Queued {
    int piece, visit;
  };
  std::vector<Queued> order_;
  std::size_t next_ = 0;                   // of order_
  std::vector<std::vector<int>> decided_;  // by visit: what it releases, from the first time on

  ShardBuffers buffers_;
  std::vector<int> buffer_;  // by piece: that holds its shard, or none
  std::vector<int> free_;    // buffers, the last one is taken first
  std::string failure_;
};

}  // namespace dstune::plan
