#pragma once

#include <array>
#include <optional>

#include "average.hpp"
#include "dstune/group/process_group.hpp"
#include "shared_node.hpp"

namespace dstune {

/// Collectives of ranks of one node through their shared segments, in chunks: while a chunk is
/// reduced the next one is already copied into the other half of the staging memory.
class SharedMemoryGroup : public ProcessGroup {
 public:
  /// Members only. Throws CollectiveError where one does not come.
  SharedMemoryGroup(SharedNode& node, std::span<const int> local_ranks,
                    std::vector<int> world_ranks, int group_rank, std::uint64_t attempt,
                    Waiter waiter);

  void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                  const RankRange& among) override;
  void reduce_average(void* data, std::int64_t count, DType type, int root) override;
  void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank, DType type,
                              const RankRange& among) override;
  void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override;
  void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override;
  void exchange_into(std::span<const double> mine, std::span<double> all) override;

 private:
  struct Chunk {
    std::int64_t first = 0;  // elements
    std::int64_t count = 0;
    int slot = 0;
    std::uint64_t copied_phase = 0;
  };
  /// A call's ranks, all of them counted; parts of the group go through the same phases.
  struct Call {
    RankRange ranks;
    std::int64_t count;  ///< elements of all data, or of each rank's part
    DType type;
    Write write;
    int divisor = ranks.count;
    [[nodiscard]] int size() const { return ranks.count; }
    /// Returns where a part's elements are from `first` on, in bytes.
    [[nodiscard]] std::size_t place(int index, std::int64_t first) const {
      return as_bytes(index * count + first, type);
    }
  };

  template <class Body>
  void guarded(Body&& body);
  /// Runs `copy_in` and `finish` over all chunks, the copy of each before the end of the one
  /// before.
  template <class CopyIn, class Finish>
  void for_chunks(const Call& call, std::int64_t chunk_count, CopyIn&& copy_in, Finish&& finish);

  [[nodiscard]] Call call_of(const RankRange& among, std::int64_t count, DType type) const;
  [[nodiscard]] Call call_of_parts(const RankRange& among, std::int64_t count, DType type) const;
  /// To all of the ranks, or to the root alone.
  void reduce(void* data, const Call& call, std::optional<int> root);
  void reduce_directly(std::byte* data, const Chunk& chunk, const Call& call);
  void reduce_own_slice(const Chunk& chunk, std::int64_t slice_count, const Call& call);
  void gather_slices(std::byte* data, const Chunk& chunk, std::int64_t slice_count,
                     const Call& call);
  /// The others' parts of this chunk into the own slot, `piece` elements apart.
  void copy_in_parts(const void* in, const Chunk& chunk, const Call& call, std::int64_t piece);
  /// Copies what the others have for this rank to their parts of `out`, from element `first` of
  /// their slots on.
  void copy_out_parts(void* out, const Chunk& chunk, const Call& call, std::int64_t first,
                      const char* what);
  void wait_for_ranks(const RankRange& ranks, std::uint64_t phases, const char* what) const;

  [[nodiscard]] std::byte* slot(int rank, int index) const;
  [[nodiscard]] int own_index(const Call& call) const { return call.ranks.index_of(group_rank()); }
  const void*& part(int index) { return parts_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::span<const void* const> parts(const Call& call) const {
    return std::span(parts_).first(static_cast<std::size_t>(call.size()));
  }
  [[nodiscard]] std::int64_t chunk_elements(DType type) const;

  std::shared_ptr<Membership> membership_;
  Waiter waiter_;
  std::size_t slot_bytes_;
  std::vector<const void*> parts_;  ///< of a reduction, one a rank; kept, so that none is allocated
  int next_slot_ = 0;
  int next_numbers_ = 0;
  /// The phase after which nobody reads what is there, of those who read it last.
  struct Free {
    RankRange readers;
    std::uint64_t phase = 0;
  };
  std::array<Free, 2> slot_free_{};
  std::array<std::uint64_t, 2> numbers_free_phase_{};
};

}  // namespace dstune
