#pragma once
/// Collectives over the ranks of one experiment. Results are the same on every run and for every
/// implementation but NCCL's: sums are formed in group-rank order in fp32 and rounded once. Every
/// call may throw CollectiveError (deadline, abort); after that the group is of no further use.
///
/// A group made for a device with queues works on that device's memory, in the queue that is used
/// at the call. It may return when the collective is only enqueued; exchange_into() is the host's.
///
/// `among`: the ranks that take part, this one among them. Every rank of the group calls with a
/// range of as many ranks. So the group falls into parts that do the same side by side; only the
/// ranks of a part wait for each other.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dstune/base/operands.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/device/queues.hpp"

namespace dstune {

enum class Reduction { sum, average };

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int group_rank() const { return group_rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(world_ranks_.size()); }
  [[nodiscard]] const std::vector<int>& world_ranks() const { return world_ranks_; }
  /// The group's MPI communicator as MPI_Comm_f2c takes it; −1 where it has none. Local.
  [[nodiscard]] virtual int mpi_communicator() const { return -1; }

  /// Returns a wait for the device that a group's collectives are enqueued on. It also ends if the
  /// group sees that one of them can not end any more. Local.
  [[nodiscard]] virtual Waiter watched(const Waiter& waiter) const { return waiter; }

  /// Tells whether collectives that are asked for while the device's queues are recorded become
  /// part of the recording. All ranks record the same ones, or none. Local.
  [[nodiscard]] virtual bool is_recordable() const { return false; }
  /// The reason where they do not. Local.
  [[nodiscard]] virtual std::string why_not_recordable() const {
    return "collectives go through the host";
  }
  /// After a recording failed on a rank, for that reason: what broke with it is made anew, and
  /// nothing of these ranks is recorded any more. Recordings of the group are gone by then.
  /// Collective over the group. Throws CollectiveError, DeviceError.
  virtual void renew(const std::string& /*why*/) {}

  /// The same ranks', for the memory of their hosts; itself where devices have none of their own.
  /// While one of the two works the other may not. Local.
  [[nodiscard]] virtual ProcessGroup& host() { return *this; }

  /// data[count] becomes the sum or the mean over the ranks. f32, bf16 or f16. Collective over the
  /// group.
  virtual void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                          const RankRange& among) = 0;
  void all_reduce_average(void* data, std::int64_t count, DType type, const RankRange& among = {}) {
    all_reduce(data, count, type, Reduction::average, among);
  }
  void all_reduce_sum(void* data, std::int64_t count, DType type) {
    all_reduce(data, count, type, Reduction::sum, {});
  }
  /// Averages as all_reduce_average over all ranks, but only `root` has the result; the others'
  /// data is unchanged. Collective over the group.
  virtual void reduce_average(void* data, std::int64_t count, DType type, int root) = 0;
  /// out[count] is the mean of every rank's in[index·count …], index being this rank's place among
  /// them. out may be that part of in. Collective over the group.
  virtual void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank,
                                      DType type, const RankRange& among = {}) = 0;
  /// out[ranks·count]; in[count] may be out's own part. Collective over the group.
  virtual void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among = {}) = 0;
  /// out[ranks·count], which does not overlap in[ranks·count]: part r of `in` goes to the r-th of
  /// them, part r of `out` comes from it. Collective over the group.
  virtual void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                          const RankRange& among = {}) = 0;
  /// Every rank's few numbers (at most 32, equally many), rank after rank, to `all`. Collective
  /// over the group.
  virtual void exchange_into(std::span<const double> mine, std::span<double> all) = 0;
  /// The same in memory that it takes for them.
  std::vector<double> exchange(std::span<const double> mine) {
    std::vector<double> all(mine.size() * world_ranks_.size());
    exchange_into(mine, all);
    return all;
  }

 protected:
  ProcessGroup(int group_rank, std::vector<int> world_ranks)
      : group_rank_(group_rank), world_ranks_(std::move(world_ranks)) {}

 private:
  int group_rank_;
  std::vector<int> world_ranks_;
};

/// A group of one rank: its mean is its own data. Local.
class SelfGroup : public ProcessGroup {
 public:
  explicit SelfGroup(int world_rank) : ProcessGroup(0, {world_rank}) {}
  /// On the memory of a device, whose queues outlive it.
  SelfGroup(int world_rank, Queues& queues)
      : ProcessGroup(0, {world_rank}),
        queues_(&queues),
        host_(std::make_unique<SelfGroup>(world_rank)) {}

  [[nodiscard]] ProcessGroup& host() override { return host_ ? *host_ : *this; }
  [[nodiscard]] bool is_recordable() const override { return true; }
  void all_reduce(void*, std::int64_t, DType, Reduction, const RankRange&) override {}
  void reduce_average(void*, std::int64_t, DType, int) override {}
  void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank, DType type,
                              const RankRange&) override {
    copy(out, in, count_per_rank * size_bytes(type));
  }
  void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange&) override {
    copy(out, in, count_per_rank * size_bytes(type));
  }
  void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange&) override {
    copy(out, in, count_per_rank * size_bytes(type));
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    std::ranges::copy(mine, all.begin());
  }

 private:
  void copy(void* out, const void* in, std::int64_t bytes) {
    if (out == in || bytes == 0) return;
    if (queues_ != nullptr) return queues_->copy(out, in, bytes);
    std::memcpy(out, in, static_cast<std::size_t>(bytes));
  }

  Queues* queues_ = nullptr;
  std::unique_ptr<SelfGroup> host_;
};

/// Another group with something changed: overrides that, and all else is the other's.
class ForwardingGroup : public ProcessGroup {
 public:
  [[nodiscard]] int mpi_communicator() const override { return group_->mpi_communicator(); }
  [[nodiscard]] Waiter watched(const Waiter& waiter) const override {
    return group_->watched(waiter);
  }
  [[nodiscard]] bool is_recordable() const override { return group_->is_recordable(); }
  [[nodiscard]] std::string why_not_recordable() const override {
    return group_->why_not_recordable();
  }
  void renew(const std::string& why) override { group_->renew(why); }
  [[nodiscard]] ProcessGroup& host() override { return group_->host(); }
  void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                  const RankRange& among) override {
    before_collective();
    group_->all_reduce(data, count, type, op, among);
  }
  void reduce_average(void* data, std::int64_t count, DType type, int root) override {
    before_collective();
    group_->reduce_average(data, count, type, root);
  }
  void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank, DType type,
                              const RankRange& among) override {
    before_collective();
    group_->reduce_scatter_average(out, in, count_per_rank, type, among);
  }
  void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override {
    before_collective();
    group_->all_gather(out, in, count_per_rank, type, among);
  }
  void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override {
    before_collective();
    group_->all_to_all(out, in, count_per_rank, type, among);
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    before_collective();
    group_->exchange_into(mine, all);
  }

 protected:
  /// The group outlives it.
  explicit ForwardingGroup(ProcessGroup& group)
      : ProcessGroup(group.group_rank(), group.world_ranks()), group_(&group) {}
  /// Runs before every collective, and before exchanges of numbers, too.
  virtual void before_collective() {}
  [[nodiscard]] ProcessGroup& forwarded() { return *group_; }
  /// The same ranks' group, which outlives it.
  void forward_to(ProcessGroup& group) { group_ = &group; }

 private:
  ProcessGroup* group_;
};

/// The same ranks' group of one attempt after the other, for what is built on it once.
class SuccessiveGroup : public ForwardingGroup {
 public:
  explicit SuccessiveGroup(ProcessGroup& group) : ForwardingGroup(group) {}
  /// The group of the attempt that follows. It is used until the next one is.
  void follow(ProcessGroup& group) { forward_to(group); }
};

}  // namespace dstune
