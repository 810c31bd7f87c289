#pragma once
/// A device with memory and queues of its own, for tests: the processor's kernels, done later.

#include <cstdint>
#include <memory>
#include <optional>

#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"
#include "shuffled_queues.hpp"

namespace dstune::test {

/// What the host or an operation does with memory before, or after, the plan's events allow it
/// shows in the losses or ends the program. Every seed is another order. One thread.
class ShuffledDevice : public Device {
 public:
  ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed);
  /// With another table's functions, as later_table() puts them off; it outlives the device.
  ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed, const kernels::Table& later);

  [[nodiscard]] ShuffledQueues& shuffled_queues() { return static_cast<ShuffledQueues&>(queues()); }

  /// What a recording takes of its memory, which it is said to keep.
  static constexpr std::int64_t recording_bytes = 1000;
  [[nodiscard]] std::optional<std::int64_t> taken_bytes() override {
    return arena().capacity_bytes() + shuffled_queues().recorded() * recording_bytes;
  }

 private:
  ShuffledDevice(std::int64_t memory_limit_bytes, std::uint64_t seed, const kernels::Table& later,
                 std::unique_ptr<ProtectedMemory> memory);
};

/// A group whose collectives are work of the device's queues, as NCCL's are of streams. Numbers are
/// exchanged by the host.
class ShuffledGroup : public ProcessGroup {
 public:
  /// Both outlive it.
  ShuffledGroup(ProcessGroup& group, ShuffledQueues& queues)
      : ProcessGroup(group.group_rank(), group.world_ranks()), group_(group), queues_(queues) {}

  [[nodiscard]] bool is_recordable() const override { return true; }
  void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                  const RankRange& among) override;
  void reduce_average(void* data, std::int64_t count, DType type, int root) override;
  void reduce_scatter_average(void* out, const void* in, std::int64_t count, DType type,
                              const RankRange& among) override;
  void all_gather(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override;
  void all_to_all(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override;
  void exchange_into(std::span<const double> mine, std::span<double> all) override;

 private:
  ProcessGroup& group_;
  ShuffledQueues& queues_;
};

}  // namespace dstune::test
