#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dstune/device/queues.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune {

/// Collectives on the memory of devices through that of their hosts. A piece is copied to pinned
/// memory, the host's group does its part there, and the result is copied back. The copies run
/// beside the collective of another piece. For ranks that share a GPU, which NCCL refuses, and the
/// reference for what else works on devices: the results have the bits of the host's group.
///
/// A group whose collectives go through the host's memory. Copies go to the queue that is used at
/// the call. The call returns when it is done, so nothing runs beside it but what was asked for
/// before: times say nothing of a GPU of one's own. After an error the staging memory is free once
/// the queues have finished.
class StagedGroup : public ProcessGroup {
 public:
  /// `staging`: pinned memory of the host, from a multiple of 64 bytes on, this group's alone and
  /// outliving it like the queues. Every rank has as much, min_staging_bytes() or more. Local.
  StagedGroup(std::unique_ptr<ProcessGroup> host, Queues& queues, std::span<std::byte> staging);

  [[nodiscard]] static std::size_t min_staging_bytes(int group_size);

  [[nodiscard]] int mpi_communicator() const override { return host_->mpi_communicator(); }
  [[nodiscard]] ProcessGroup& host() override { return *host_; }
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
  /// A call's data for each of so many ranks, one after the other.
  struct Parts {
    std::int64_t count_per_rank;
    DType type;
    int num;
  };
  /// Elements of each of a call's parts, and where they are staged.
  struct Piece {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::byte* slot = nullptr;
  };

  template <class Body>
  void guarded(Body&& body);
  template <class CopyIn, class Collective, class CopyOut>
  void for_pieces(std::int64_t count, std::int64_t piece_count, CopyIn&& copy_in,
                  Collective&& collective, CopyOut&& copy_out);
  template <class Collective>
  void in_place(void* data, std::int64_t count, DType type, bool copies_back,
                Collective&& collective);
  /// The piece of all parts to where it is staged, or from there.
  void copy_in(const Piece& piece, const void* parts, const Parts& of);
  void copy_out(void* parts, const std::byte* staged, const Piece& piece, const Parts& of);
  [[nodiscard]] RankRange own_range(const RankRange& among) const;
  /// Elements of a piece where a slot holds so many parts of it.
  [[nodiscard]] std::int64_t piece_elements(DType type, int parts) const;

  std::unique_ptr<ProcessGroup> host_;
  Queues& queues_;
  std::span<std::byte> staging_;
  std::size_t slot_bytes_;
  bool failed_ = false;
};

}  // namespace dstune
