#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dstune/device/queues.hpp"
#include "dstune/group/process_group.hpp"
#include "nccl_communicator.hpp"

namespace dstune {

/// Collectives of GPUs by NCCL, enqueued in the queue that is used at the call. They return then;
/// whether they could be done shows where the queue is waited for, with watched().
///
/// What differs from other groups: NCCL sums in the order that its algorithm for that size and
/// those GPUs takes, in 16-bit types with a rounding at every step, and an average is a sum of
/// elements that were divided by the number of ranks before. The same ranks get the same bits from
/// the same call; other sizes of a group, types and versions differ in the last ones.
///
/// After an error, and where the wait for a queue ended with one, the communicator is aborted by a
/// thread of its own and never used again.
class NcclGroup : public ProcessGroup {
 public:
  struct Recording {
    /// The reason that collectives of these ranks can not be recorded; empty: they can.
    std::string why_not{};
    /// A communicator in place of one that broke in a recording. Collective over the host group.
    std::function<std::shared_ptr<NcclCommunicator>(ProcessGroup& host, const std::string& why)>
        renewed = nullptr;
  };
  /// `host`: the same ranks', for what is exchanged by the hosts. The queues outlive it; the waiter
  /// ends the waits until something is enqueued. Local.
  NcclGroup(std::unique_ptr<ProcessGroup> host, std::shared_ptr<NcclCommunicator> communicator,
            Queues& queues, Waiter waiter, Recording recording);

  [[nodiscard]] int mpi_communicator() const override { return host_->mpi_communicator(); }
  [[nodiscard]] ProcessGroup& host() override { return *host_; }
  [[nodiscard]] Waiter watched(const Waiter& waiter) const override;
  [[nodiscard]] bool is_recordable() const override {
    return recording_.why_not.empty() && communicator().is_usable();
  }
  [[nodiscard]] std::string why_not_recordable() const override { return recording_.why_not; }
  void renew(const std::string& why) override;
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
  /// call(library, communicator, stream) among some ranks; a part of one rank has what it gives.
  template <class Call>
  void enqueue(const RankRange& among, const nccl::Buffers& buffers, const char* what, Call&& call);

  [[nodiscard]] NcclCommunicator& communicator() const { return **communicator_; }

  std::unique_ptr<ProcessGroup> host_;
  /// Shared with waiters that watch it: another one where the group was renewed.
  std::shared_ptr<std::shared_ptr<NcclCommunicator>> communicator_;
  Queues& queues_;
  Waiter waiter_;
  Recording recording_;
};

}  // namespace dstune
