#pragma once
/// Where the averaged gradients of the own part go: on the device into one flat tensor, with an
/// offloaded optimizer to the host, parameter by parameter as in DeepSpeed.

#include <vector>

#include "bucket_ranges.hpp"

namespace dstune::plan {

class OwnGradients {
 public:
  OwnGradients(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
               const PersistentTensors& tensors);

  /// One pass over all gradients: of the first micro-step that reduces, the last of a step.
  void begin(bool overwrite, bool last);
  /// The scratch of a bucket's keep(), to be released when the stream is done with it.
  [[nodiscard]] std::vector<TensorId> acquire_scratch(const BucketRange& range) const;
  /// Stages 1 and 2: `averaged` is the whole bucket. Stage 3: the own shards of it.
  void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
            Stream stream) const;
  /// Where a reduction may put the own shards of a bucket itself; no view where it may not.
  [[nodiscard]] View place_of_shards(const BucketRange& range) const;

 private:
  /// A parameter, or the shard of it, that is kept.
  struct Kept {
    std::int64_t averaged_offset, elements;
    std::int64_t accumulated_offset;
    std::int64_t slice_offset, slice_elements;  ///< what is own, inside of it
    std::int64_t own_offset;
  };

  [[nodiscard]] std::vector<Kept> pieces(const BucketRange& range) const;
  [[nodiscard]] std::int64_t largest_piece(const BucketRange& range) const;
  void keep_on_device(const BucketRange& range, View averaged, Stream stream) const;
  void accumulate(const Kept& piece, View averaged, View staging, Stream stream) const;
  /// The sum of the step is on the device: its norm is taken and fp32 goes to the host.
  void hand_over(const Kept& piece, View sum, TensorId converted, Stream stream) const;

  Emitter& emitter_;
  const Layout& layout_;
  const PersistentTensors& tensors_;
  bool is_offloaded_;
  bool is_stage3_;
  bool takes_norm_;
  bool overwrite_ = true, last_ = true;
};

}  // namespace dstune::plan
