#pragma once
/// The gradients of sub-groups whose states are on a disk: in fp32, parameter by parameter as in
/// DeepSpeed. Those of small parameters, and the ends of others that no whole block holds, wait on
/// the device; the rest goes to the disk and comes back for the update.

#include <vector>

#include "zero/sub_groups.hpp"

namespace dstune::plan {

struct GradientPart {
  std::int64_t first = 0, count = 0;  ///< elements of the own part
  std::int64_t held_offset = -1;      ///< among those on the device; −1: it goes to the disk
};

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
class GradientWriter {
 public:
  GradientWriter(Emitter& emitter, const PersistentTensors& tensors)
      : emitter_(emitter), tensors_(tensors) {}

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
  Emitter& emitter_;
  const PersistentTensors& tensors_;
  std::size_t buffer_ = 0;     ///< that is filling
  std::int64_t filled_ = 0;    ///< elements of it
  std::size_t submitted_ = 0;  ///< buffers that are being written
  std::vector<Pending> pending_;
};

}  // namespace dstune::plan
