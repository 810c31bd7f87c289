#pragma once

#include <memory>
#include <optional>

#include "dstune/comm/communicator.hpp"
#include "dstune/group/process_group.hpp"

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

/// Collectives through non-blocking MPI. A reduction sends every rank its slice of everybody's
/// data; each sums its slice in order. On CollectiveError the context is abandoned.
class MpiGroup : public ProcessGroup {
 public:
  /// Local.
  MpiGroup(std::shared_ptr<MpiContext> context, std::vector<int> world_ranks, int group_rank,
           Waiter waiter);

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
  /// A piece of each of a call's equal parts.
  struct Pieces {
    std::int64_t first, count, count_per_part;
    DType type;
    int num_parts;
  };

  /// Abandons the context where the body throws.
  template <class Body>
  void guarded(Body&& body);
  /// body(first, count) for one chunk after the other.
  template <class Body>
  void for_chunks(std::int64_t count, std::int64_t chunk_count, Body&& body);
  void complete(Request request, const char* what) const;
  /// To all of the ranks, or to the root alone.
  void reduce(void* data, std::int64_t count, DType type, const RankRange& ranks, int divisor,
              std::optional<int> root);
  /// The pieces of `parts` to `sent`, and those in `received` to `parts`, without gaps there.
  void copy_in(const void* parts, const Pieces& pieces);
  void copy_out(void* parts, const Pieces& pieces) const;
  /// Every rank's part for this rank, summed from `sent` into the front of `sent`.
  void reduce_parts(std::int64_t count_per_rank, DType type, const RankRange& ranks, int divisor);
  /// From `sent` to `received`: every rank's part for this rank, or the same from each.
  void exchange_parts(std::size_t bytes_per_rank, const RankRange& ranks, const char* what);
  void gather(std::size_t bytes_per_rank, const RankRange& ranks, const char* what);
  /// Point to point, where not all ranks take part: these need no communicator of their own.
  void send_and_receive(std::size_t bytes_per_rank, std::size_t sent_stride_bytes,
                        const RankRange& ranks, const char* what);
  void complete_requests(const char* what);
  /// The sums at the front of every rank's `sent`, one after the other in root's `received`.
  void collect_parts(std::size_t bytes_per_rank, int root);
  [[nodiscard]] std::int64_t elements_per_rank(DType type, const RankRange& ranks) const;

  [[nodiscard]] std::byte* sent() const { return context_->sent->data(); }
  [[nodiscard]] std::byte* received() const { return context_->received->data(); }

  std::shared_ptr<MpiContext> context_;
  std::size_t staging_bytes_;  ///< of each direction
  Waiter waiter_;
  // Kept, so that a training step takes nothing from the heap.
  std::vector<const void*> parts_;  ///< one a rank
  std::vector<Request> requests_;
};

}  // namespace dstune
