#pragma once

#include <memory>

#include "dstune/device/queues.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune {

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
  void all_reduce_average(void* data, std::int64_t count, DType type,
                          const RankRange& among) override;
  void all_reduce_sum(void* data, std::int64_t count, DType type) override;
  void reduce_average(void* data, std::int64_t count, DType type, int root) override;
  void reduce_scatter_average(void* out, const void* in, std::int64_t count_per_rank, DType type,
                              const RankRange& among) override;
  void all_gather(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override;
  void all_to_all(void* out, const void* in, std::int64_t count_per_rank, DType type,
                  const RankRange& among) override;
  void exchange_into(std::span<const double> mine, std::span<double> all) override;

 private:
  void copy(void* out, const void* in, std::int64_t count, DType type);

  Queues* queues_ = nullptr;
  std::unique_ptr<SelfGroup> host_;
};

}  // namespace dstune
