#pragma once
/// Where the averaged gradients of the own part go: on the device into one flat tensor, with an
/// offloaded optimizer to the host, parameter by parameter as in DeepSpeed.

#include <vector>

#include "zero/bucket_ranges.hpp"
#include "zero/swapped_gradients.hpp"

namespace dstune::plan {

class OwnGradients {
 public:
  OwnGradients(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
               const PersistentTensors& tensors);

  /// One pass over all gradients: of the first micro-step that reduces, the last of a step.
  void begin(bool overwrite, bool last);
  /// The scratch of a bucket's keep(), to be released when the stream is done with it.
  [[nodiscard]] std::vector<TensorId> acquire_scratch(const BucketRange& range) const;
  /// `averaged` is the whole bucket, or where that is scattered the own shards of it.
  void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
            Stream stream);
  /// All are kept: what goes to a disk is there when compute goes on.
  void finish();
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
  [[nodiscard]] Kept shard_of(const BucketRange& range, int piece) const;
  void keep_on_device(const BucketRange& range, View averaged, TensorId converted,
                      Stream stream) const;
  /// Where the host keeps the sums of a piece over micro-steps.
  struct Sums {
    View host;
    std::int64_t elements;
  };
  [[nodiscard]] Sums sums_of(const Kept& piece) const;
  void accumulate(const Sums& sums, View averaged, View staging, Stream stream) const;
  /// The sum of the step is on the device: its norm is taken and it goes where its update is, in
  /// the master copy's type.
  void hand_over(const Kept& piece, View sum, TensorId converted, Stream stream);
  [[nodiscard]] const SubGroup& sub_group_of(std::int64_t own_element) const;

  Emitter& emitter_;
  const Layout& layout_;
  const PersistentTensors& tensors_;
  bool is_offloaded_;
  bool is_stage3_;
  bool takes_sums_;  // not what comes from a reduction, but the sums of stage 1 in fp32
  DType sum_type_;   // of what is taken
  DType master_type_;
  bool adds_to_own_;  // offloaded: sums over micro-steps are in the own gradients
  bool in_place_;     // a reduction may put the own shards there itself
  bool takes_norm_;
  bool is_converted_;   // averages come in another type
  bool rounds_;         // … and are converted back before they are added
  bool rounds_always_;  // … or kept
  bool overwrite_ = true, last_ = true;
  SwappedGradients swapped_;
  GradientWriter writer_;
};

}  // namespace dstune::plan
