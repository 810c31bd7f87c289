#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/group/process_group.hpp"
#include "slice_routes.hpp"

namespace dstune {

/// A communicator with staging memory of its own: the only memory that MPI sees, so that whatever a
/// late peer writes into an abandoned operation hits nothing that is still used.
struct MpiContext {
  /// `id` tells apart the communicators that the same ranks had.
  MpiContext(Communicator made, std::size_t staging_bytes, std::uint64_t id);
  /// Communicator and staging memory are never used and never freed again. Local.
  void abandon() noexcept;

  Communicator communicator;
  std::unique_ptr<Bytes> sent;
  std::unique_ptr<Bytes> received;
  std::uint64_t id;
  bool abandoned = false;
};

/// Collectives through MPI's messages between two ranks. A reduction sends every rank its slice of
/// everybody's data; each sums its slice in order. Slices travel in pieces, many at once in both
/// directions. On CollectiveError the context is abandoned.
class MpiGroup : public ProcessGroup {
 public:
  /// `node_of_rank` is by rank in the group. Local.
  MpiGroup(std::shared_ptr<MpiContext> context, std::vector<int> world_ranks,
           std::vector<int> node_of_rank, int group_rank, Waiter waiter);

  [[nodiscard]] int mpi_communicator() const override {
    return context_->communicator.fortran_handle();
  }
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
  /// One collective. Its data are slices of equal length, one a rank that takes part; the last ones
  /// may be shorter. Block b is the b-th piece of each slice.
  struct Call {
    std::byte* out;
    const std::byte* in;
    std::int64_t count;  ///< elements of all slices
    DType type;
    RankRange ranks;
    int divisor = 1;
    int root = 0;
    // begin() works these out.
    std::int64_t slice_count = 0, piece_count = 0, num_blocks = 0, window = 0;
    std::size_t piece_bytes = 0;
    int own_index = 0;
    const SliceRoutes* routes = nullptr;
  };
  /// One step of a block; the next one begins when what this one sends and receives is there.
  using Step = void (MpiGroup::*)(const Call& call, std::int64_t block);

  void begin(Call& call);
  /// Takes every block through the steps, many blocks at once. Abandons the context where it fails.
  void run(Call call, std::span<const Step> steps, const char* what);
  /// All that a step of a block sends and receives is there.
  [[nodiscard]] bool has_arrived(const Call& call, std::int64_t block);

  /// Steps. Each rank's slices to their owners.
  void exchange(const Call& call, std::int64_t block);
  /// Everybody's own slice, summed in `sent`.
  void sum(const Call& call, std::int64_t block);
  void sum_and_gather(const Call& call, std::int64_t block);
  void sum_and_collect(const Call& call, std::int64_t block);
  void sum_and_store(const Call& call, std::int64_t block);
  /// The only slice of `in`, to all.
  void load_and_gather(const Call& call, std::int64_t block);
  /// Slices of other nodes, to those beside this rank.
  void pass_on(const Call& call, std::int64_t block);
  void store(const Call& call, std::int64_t block);
  void store_at_root(const Call& call, std::int64_t block);

  void gather(const Call& call, std::int64_t block);
  void send(const Call& call, std::int64_t block, const std::byte* from, std::size_t bytes, int to,
            int tag);
  /// Into the place of a slice in `received`.
  void receive(const Call& call, std::int64_t block, int place, std::size_t bytes, int from,
               int tag);
  /// Bytes of a block's piece of a slice, and where that begins in the slices.
  [[nodiscard]] std::size_t bytes_of(const Call& call, std::int64_t block, int index) const;
  [[nodiscard]] std::size_t place_of(const Call& call, std::int64_t block, int index) const;
  /// Its place in the staging memory: this rank's own in `sent`, others' in `received`.
  [[nodiscard]] std::byte* sent(const Call& call, std::int64_t block, int index) const;
  [[nodiscard]] std::byte* received(const Call& call, std::int64_t block, int index) const;
  [[nodiscard]] std::byte* arrived(const Call& call, std::int64_t block, int index) const;

  std::shared_ptr<MpiContext> context_;
  std::vector<int> node_of_rank_;
  Waiter waiter_;
  // Kept, so that a training step takes nothing of them from the heap.
  std::vector<const void*> parts_;              ///< one a rank
  std::vector<std::vector<Request>> requests_;  ///< of each block under way
  RankRange routed_{};                          ///< the ranks that both are of
  SliceRoutes direct_, by_node_;
};

}  // namespace dstune
