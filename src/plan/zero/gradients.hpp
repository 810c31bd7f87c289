#pragma once
/// The way of gradients: where backward writes them, the buckets that they travel in, the ways of
/// averaging them over the group, and where the own part goes.

#include <memory>
#include <optional>
#include <vector>

#include "zero/states.hpp"

namespace dstune::plan {

/// How reduce_bucket_size cuts the parameters: as DeepSpeed, whole parameters in the order in which
/// their gradients are handed over, a parameter larger than a bucket alone.
struct BucketRange {
  int first, last;          ///< parameters [first, last) of the table
  std::int64_t begin, end;  ///< in the flat order
  std::int64_t shards;      ///< stage 3: elements of a rank's shards of them
  bool alone;               ///< one parameter larger than the bucket
  /// Stage 3: each rank gets its shards of the average, not the whole of it.
  bool is_scattered = false;

  [[nodiscard]] std::int64_t elements() const { return end - begin; }
};

/// In order of arrival: backward finishes gradients from the end of the table to its beginning;
/// stage 1 hands them over from the beginning where it waits for the end of backward.
std::vector<BucketRange> cut_into_buckets(const Layout& layout, std::int64_t bucket_elements,
                                          bool from_the_beginning = false);

/// Tensors that a reduction uses beside its bucket, each if it needs it.
struct ReductionScratch {
  TensorId scattered = no_tensor;  ///< the own shards of the average, unless they go to their place
  TensorId flattened = no_tensor;  ///< what one owner holds of the bucket, side by side
  /// Codes and scales of one quantised gradient after the other travel through these; `sums` are
  /// over a node. `padded` is the padded gradient of one that is reduced as it is.
  TensorId codes = no_tensor, scales = no_tensor;
  TensorId received_codes = no_tensor, received_scales = no_tensor;
  TensorId sums = no_tensor;
  TensorId padded = no_tensor;
};

/// One way of averaging a bucket over the ranks that share a copy of the states.
class Reduction : ZeroPart {
 public:
  enum class Kind {
    none,  ///< a group of one
    /// The whole bucket to all ranks, at once: stages 1 and 2 with use_multi_rank_bucket_allreduce,
    /// and all stages without reduce_scatter.
    all_reduce,
    /// A parameter that is alone to all ranks: DeepSpeed sends what it has of one owner after
    /// another as soon as that is more than a bucket.
    all_reduce_by_owners,
    to_owners,  ///< what each holds of the bucket, put side by side: stages 1 and 2
    scatter,    ///< stage 3
    /// ZeRO++'s zero_quantized_gradients on several nodes: piece by piece, as codes of 4 bits that
    /// change places inside the node, are added up, and change places across the nodes.
    quantized_scatter,
  };
  Reduction(const ZeroContext& zero, Kind kind) : ZeroPart(zero), kind_(kind) {}

  /// Each rank gets its shards of the average alone.
  [[nodiscard]] bool scatters() const {
    return kind_ == Kind::scatter || kind_ == Kind::quantized_scatter;
  }
  /// The bucket is [rank][parameters' shards], padded, else in the flat order.
  [[nodiscard]] bool lies_by_rank() const { return kind_ == Kind::scatter; }
  /// But `scattered`.
  void acquire(const BucketRange& range, ReductionScratch& scratch) const;
  /// `shards`: where the own shards go, where it scatters. Else the bucket becomes the average, at
  /// least where it is the own part.
  void reduce(const BucketRange& range, View bucket, View shards, const ReductionScratch& scratch,
              Stream stream) const;

 private:
  TensorId acquire_tensor(const char* name, DType type, std::int64_t count) const {
    return count == 0 ? no_tensor : emitter_.acquire(name, -1, Category::buckets, type, count);
  }
  void all_reduce_by_owners(const BucketRange& range, View bucket, Stream stream) const;
  void acquire_flattened(const BucketRange& range, ReductionScratch& scratch) const;
  void reduce_to_owners(const BucketRange& range, View bucket, TensorId flattened,
                        Stream stream) const;
  void acquire_quantized(const BucketRange& range, ReductionScratch& scratch) const;
  void reduce_quantized(const BucketRange& range, View bucket, View shards,
                        const ReductionScratch& scratch, Stream stream) const;
  void reduce_across_nodes(const Piece& piece, View gradient, View shard,
                           const ReductionScratch& scratch, Stream stream) const;
  void reduce_as_it_is(const Piece& piece, View gradient, View shard, TensorId padded,
                       Stream stream) const;

  Kind kind_;
};

/// The reductions that DeepSpeed chooses: for buckets of several parameters, and for a parameter
/// alone.
struct Reductions {
  Reduction shared, alone;
};
/// `contiguous`: gradients are copied to buckets as they arrive.
[[nodiscard]] Reductions choose_reductions(const ZeroContext& zero, bool contiguous);

/// The destination of the averaged gradients of the own part.
class OwnGradients {
 public:
  virtual ~OwnGradients() = default;
  /// One pass over all gradients: of the first micro-step that reduces, the last of a step.
  void begin(bool overwrite, bool last) {
    overwrite_ = overwrite;
    last_ = last;
  }
  /// The scratch of a bucket's keep(), to be released when the stream is done with it.
  [[nodiscard]] virtual std::vector<TensorId> acquire_scratch(const BucketRange& range) const = 0;
  /// `averaged` is the whole bucket, or where that is scattered the own shards of it.
  virtual void keep(const BucketRange& range, View averaged, const std::vector<TensorId>& scratch,
                    Stream stream) = 0;
  /// All are kept: what goes to a disk is there when compute goes on.
  virtual void finish() {}
  /// The place into which a reduction may put the own shards of a bucket itself; no view if it may
  /// not.
  [[nodiscard]] virtual View place_of_shards(const BucketRange&) const { return {}; }

 protected:
  bool overwrite_ = true, last_ = true;
};
/// On the device, in one flat tensor; of an offloaded optimizer on the host or a disk.
[[nodiscard]] std::unique_ptr<OwnGradients> own_gradients_of(const ZeroContext& zero);

/// Stage 1 brings its fp32 sums to the buckets as they are.
[[nodiscard]] inline bool reduces_fp32_sums(const ZeroContext& zero) {
  return zero.config.switches.fp32_sums_are_averaged && zero.config.zero_stage == 1 &&
         zero.layout.stage() == 1 && zero.tensors.fp32_gradients != no_tensor &&
         !is_bf16_optimizer(zero.config);
}

/// Averages gradients over the group in buckets and keeps the own part: stages 1 to 3.
class Reducer : ZeroPart {
 public:
  explicit Reducer(const ZeroContext& zero);

  /// One pass over all gradients; `overwrite` the own part, or add to it; the `last` of a step.
  void begin(bool overwrite, bool last);
  /// A unit's gradients are computed: they begin at `source`, in flat order. Units arrive from the
  /// last to the first, at stage 1 without overlap from the first to the last. `slab` is released
  /// as soon as nothing reads it any more.
  void arrive(int unit, View source, TensorId slab);
  /// Tells whether the last pass of a step does more than others.
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

  [[nodiscard]] const Reduction& reduction_of(const BucketRange& range) const {
    return range.alone ? ways_.alone : ways_.shared;
  }
  [[nodiscard]] std::int64_t bucket_elements(const BucketRange& range) const;
  void copy(const Arrived& arrived, const BucketRange& range, TensorId bucket);
  void flush(const BucketRange& range);
  /// All that has arrived for a bucket; `own_bucket` is acquired where it needs one of its own.
  View bucket_of(const BucketRange& range, TensorId& own_bucket);
  /// Returns the view of a bucket that travels: itself, or a copy in the type that is sent.
  View sent_of(const BucketRange& range, View bucket, TensorId& copy);
  /// Acquires room for averages that leave the device in another type than they travelled in.
  TensorId acquire_converted(const BucketRange& range);
  Stream begin_reduction();
  /// The own part of a bucket's gradients becomes the mean over the copies of the states.
  void average_over_copies(const BucketRange& range, Stream stream);
  void drop(std::size_t slab);
  void wait_for_reduction();

  DType type_;         // of what is sent
  DType bucket_type_;  // of buckets that several parameters share
  bool contiguous_;
  bool clones_alone_;        // a parameter larger than a bucket is reduced in a copy
  bool from_the_beginning_;  // units arrive in that order
  Reductions ways_;
  std::unique_ptr<OwnGradients> own_gradients_;
  std::vector<BucketRange> ranges_;
  std::int64_t capacity_ = 0;  // elements of a bucket tensor; 0: every parameter is alone
  int num_buckets_ = 0;

  bool overwrite_ = true, last_ = true;
  std::size_t next_ = 0;  // the range that is filling
  std::vector<TensorId> buckets_;
  std::size_t filling_ = 0;
  std::vector<Slab> slabs_;
  std::vector<Arrived> uncopied_;
  // The reduction on the other stream still uses these tensors; `reduction_` is the event of its
  // end.
  int reduction_ = -1;
  std::vector<TensorId> used_tensors_;
  std::vector<std::size_t> used_slabs_;
};

struct MicroStep {
  bool first = false, last = false;
};

/// The destination of the gradients that backward writes. Stages 0 and 1 have flat gradients, which
/// add up over the micro-steps, or are new in each if sums are fp32. Stages 2 and 3 and
/// BF16_Optimizer have a slab for each unit. It is reduced, or added to its sums, and released.
class GradientSink : ZeroPart {
 public:
  explicit GradientSink(const ZeroContext& zero);

  void begin_backward(MicroStep micro);
  /// A unit's gradients can be written from open to close. Units close from the last to the first.
  void open(int unit);
  void close(int unit);
  void end_backward();
  /// Tells whether the last of several micro-steps does something else than those before it.
  [[nodiscard]] bool is_last_another() const {
    return reducer_ && (slabs_.empty() || reducer_->is_last_another());
  }

  /// No view where the unit has no such parameter.
  [[nodiscard]] View view(int unit, ParameterRole role) const;
  /// The first write of this micro-step adds to what is there.
  [[nodiscard]] bool accumulate() const {
    return slabs_.empty() && tensors_.fp32_gradients == no_tensor && !micro_.first;
  }

 private:
  /// A unit's gradients of a micro-step, to the sums in fp32.
  void add_up(int unit);
  [[nodiscard]] View unit_view(int unit) const;
  [[nodiscard]] View sum_view(int unit) const;

  bool reduces_sums_;     // in fp32 as they are, not rounded beside them
  bool adds_up_at_once_;  // each unit, or all of them behind backward
  std::optional<Reducer> reducer_;
  std::vector<TensorId> slabs_;  // of each unit, where gradients do not stay
  MicroStep micro_;
};

}  // namespace dstune::plan
