#pragma once
/// Averages gradients over the group in buckets and keeps the own part: stages 1 to 3.

#include <vector>

#include "zero/own_gradients.hpp"

namespace dstune::plan {

class Reducer {
 public:
  Reducer(Emitter& emitter, const Layout& layout, const TrainingConfig& config,
          const PersistentTensors& tensors);

  /// One pass over all gradients; `overwrite` the own part, or add to it; the `last` of a step.
  void begin(bool overwrite, bool last);
  /// A unit's gradients are computed: they begin at `source`, in flat order. Units arrive from the
  /// last to the first, at stage 1 without overlap from the first to the last. `slab` is released
  /// as soon as nothing reads it any more.
  void arrive(int unit, View source, TensorId slab);
  /// Whether the last pass of a step does more than others.
  [[nodiscard]] bool is_last_another() const {
    return layout_.offloaded().optimizer || layout_.partition().replicas > 1;
  }
  /// All units have arrived: compute goes on after the last reduction.
  void finish();

 private:
  /// Arrived parameters [first, last) of the current bucket, in the slab that begins with
  /// parameter `slab_first` at `source`.
  struct Arrived {
    int first, last, slab_first;
    View source;
    std::size_t slab;
  };
  struct Slab {
    TensorId tensor;
    int readers;
  };
  /// What travels of one quantised gradient after the other, and their sums over a node; and the
  /// padded gradient of what is reduced as it is.
  struct QuantizedBuffers {
    TensorId codes = no_tensor, scales = no_tensor;
    TensorId received_codes = no_tensor, received_scales = no_tensor;
    TensorId sums = no_tensor;
    TensorId padded = no_tensor;
    [[nodiscard]] std::vector<TensorId> all() const {
      return {codes, scales, received_codes, received_scales, sums, padded};
    }
  };

  /// Elements [begin, begin + count) of a bucket whose owner is one rank.
  struct Slice {
    int owner;
    std::int64_t begin, count;
  };

  [[nodiscard]] std::int64_t bucket_elements(const BucketRange& range) const;
  /// Stages 1 and 2. In the bucket's order, equal owners side by side in one.
  [[nodiscard]] std::vector<Slice> slices(const BucketRange& range) const;
  void copy(const Arrived& arrived, const BucketRange& range, TensorId bucket);
  void flush(const BucketRange& range);
  /// Averages the bucket; returns where the part that is kept lies, none where it is there already.
  View reduce(const BucketRange& range, View data, TensorId scattered, TensorId flattened,
              const QuantizedBuffers& quantized, Stream stream);
  /// The own part of a bucket's gradients becomes the mean over the copies of the states.
  void average_over_copies(const BucketRange& range, Stream stream);
  View reduce_scattered(const BucketRange& range, View data, TensorId scattered,
                        const QuantizedBuffers& quantized, Stream stream);
  QuantizedBuffers acquire_quantized(const BucketRange& range);
  /// Piece by piece: the own shards of the average to `out`.
  void reduce_quantized(const BucketRange& range, View data, View out,
                        const QuantizedBuffers& buffers, Stream stream);
  void reduce_across_nodes(const Piece& piece, View data, View out, const QuantizedBuffers& buffers,
                           Stream stream);
  void reduce_alone(const Piece& piece, View data, View out, TensorId padded, Stream stream);
  void reduce_to_owners(const BucketRange& range, View data, TensorId flattened, Stream stream);
  void all_reduce_alone(const BucketRange& range, View data, Stream stream);
  /// Where what an owner holds of a bucket is put side by side; none where it lies so.
  TensorId acquire_flattened(const BucketRange& range);
  void drop(std::size_t slab);
  void wait_for_reduction();

  Emitter& emitter_;
  const Layout& layout_;
  const TrainingConfig& config_;
  OwnGradients own_gradients_;
  DType type_;  // of what is sent
  bool contiguous_;
  bool to_owners_;           // DeepSpeed reduces to each owner, not to all
  bool from_the_beginning_;  // units arrive in that order
  int quantizing_nodes_;     // 0: gradients travel as they are
  std::vector<BucketRange> ranges_;
  std::int64_t capacity_ = 0;  // elements of a bucket tensor; 0: every parameter is alone
  int num_buckets_ = 0;

  bool overwrite_ = true, last_ = true;
  TensorId own_;          // gradients, which other ranks have, too, where there are several copies
  std::size_t next_ = 0;  // the range that is filling
  std::vector<TensorId> buckets_;
  std::size_t filling_ = 0;
  std::vector<Slab> slabs_;
  std::vector<Arrived> uncopied_;
  // What the reduction on the other stream still uses, and the event of its end.
  int reduction_ = -1;
  std::vector<TensorId> used_tensors_;
  std::vector<std::size_t> used_slabs_;
};

}  // namespace dstune::plan
