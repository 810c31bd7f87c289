#pragma once
/// The tensors that stage 3 has on a disk, as DeepSpeed's swappers have them there
/// (runtime/swap_tensor). States, gradients and shards of parameters travel by way of the host's
/// buffers.

#include <optional>
#include <span>
#include <vector>

#include "zero/gathering.hpp"
#include "zero/states.hpp"

namespace dstune::plan {

/// Elements between two places on a disk where a transfer may begin.
[[nodiscard]] constexpr std::int64_t disk_alignment_of(DType type) {
  return disk_alignment_bytes / size_bytes(type);
}
inline constexpr std::int64_t disk_alignment_elements = disk_alignment_of(DType::f32);

/// Tells whether DeepSpeed moves a tensor of so many bytes to a disk; otherwise it stays where it
/// is.
[[nodiscard]] bool is_swappable(const TrainingConfig& config, std::int64_t bytes);

/// Tells for each piece of stage 3 whether its shard is on the disk.
[[nodiscard]] std::vector<bool> find_shards_on_disk(const Layout& layout,
                                                    const TrainingConfig& config);

/// Tensors of a sub-group that has its master copy and gradients on a disk: these and its moments,
/// where they are there, too. DeepSpeed's Lion for the host has a moment that it does not use.
[[nodiscard]] std::int64_t tensors_on_disk(const OptimizerConfig& optimizer, const SubGroup& group);

struct GradientPart {
  std::int64_t first = 0, count = 0;  ///< elements of the own part
  std::int64_t held_offset = -1;      ///< among those on the device; −1: it goes to the disk
};

/// The gradients of sub-groups whose states are on a disk: in fp32, parameter by parameter as in
/// DeepSpeed. Those of small parameters, and the ends of others that no whole block holds, wait on
/// the device; the rest goes to the disk and comes back for the update.
class SwappedGradients {
 public:
  SwappedGradients(const Layout& layout, const TrainingConfig& config,
                   const std::vector<SubGroup>& groups);

  /// The parts of elements [first, first + count), which are whole shards; ascending.
  [[nodiscard]] std::vector<GradientPart> parts(std::int64_t first, std::int64_t count) const;
  /// Elements that wait on the device.
  [[nodiscard]] std::int64_t held_elements() const { return held_; }

 private:
  void add(std::int64_t first, std::int64_t end, bool is_held);

  std::vector<GradientPart> parts_;
  std::int64_t held_ = 0;
};

/// Sends gradients to the disk: collected in the swap buffers, a full one is written while the next
/// fills.
class GradientWriter : ZeroPart {
 public:
  explicit GradientWriter(const ZeroContext& zero) : ZeroPart(zero) {}

  /// `gradients`: fp32, on the device; they are there after what `stream` was given so far.
  void write(const SubGroup& group, const GradientPart& part, View gradients, Stream stream);
  /// The stream goes on when all is written.
  void finish(Stream stream);

 private:
  void submit(Stream stream);

  struct Pending {
    View disk, buffer;
    std::int64_t count;
  };
  std::size_t buffer_ = 0;     ///< that is filling
  std::int64_t filled_ = 0;    ///< elements of it
  std::size_t submitted_ = 0;  ///< buffers that are being written
  std::vector<Pending> pending_;
};

/// Brings the states of sub-groups to the host for their update, one sub-group after the other by
/// way of the swap buffers: DeepSpeed's swappers, the plain one and the pipelined one.
class OptimizerSwapper : ZeroPart {
 public:
  explicit OptimizerSwapper(const ZeroContext& zero);

  /// States and gradients of a sub-group on the host; compute has waited for them. The next one is
  /// on its way where reading is pipelined.
  UpdateStates swap_in(std::size_t group);
  /// They are written after what the host was given so far. Compute waits unless writing is
  /// pipelined and another sub-group follows.
  void swap_out(std::size_t group);

 private:
  struct Swap {
    std::vector<UpdateStates::Place> states;
    std::vector<std::size_t> buffers;  // of the states, in their order
    int event = 0;
  };

  Swap read(std::size_t group);
  void wait_for_write(const Swap& write);
  [[nodiscard]] std::optional<std::size_t> next_after(std::size_t group) const;

  SwappedGradients gradients_;
  std::vector<std::size_t> free_;
  std::optional<Swap> current_, ahead_, behind_;
};

}  // namespace dstune::plan
