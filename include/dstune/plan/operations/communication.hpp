#pragma once
/// The operations of a plan that order others, move data or agree on numbers. A new one stands
/// here, in a list below, with what runs it in src/train/executor/dispatch.cpp and, where it is no
/// collective, its cost in src/predict/work.cpp.

#include "dstune/base/operands.hpp"
#include "dstune/plan/operations/traits.hpp"

namespace dstune::op {

// Lifetimes and order, which access nothing.

struct Acquire {
  static constexpr OperationTraits traits{"acquire", OperationKind::order};
  TensorId tensor;
};

struct Release {
  static constexpr OperationTraits traits{"release", OperationKind::order};
  TensorId tensor;
};

/// From here on time belongs to this phase. The head goes to and fro between forward and backward,
/// once for each chunk of its logits.
struct Mark {
  static constexpr OperationTraits traits{"mark", OperationKind::order};
  Phase phase;
};

/// Event `event` is reached when everything issued on the stream so far is done.
struct Record {
  static constexpr OperationTraits traits{"record", OperationKind::order};
  int event;
};

struct Wait {
  static constexpr OperationTraits traits{"wait", OperationKind::order};
  int event;
};

using Order = OperationList<Acquire, Release, Mark, Record, Wait>;

// Transfers of `count` elements of x to y, which have the same type.

/// From the device's memory to the host's or back, or inside one.
struct Copy {
  static constexpr OperationTraits traits{"copy", OperationKind::copy, WorkKind::copy};
  View y, x;
  std::int64_t count;

  void access(AccessList& list, const PlanSizes&) const { list.transfer(y, x, count); }
};

/// From the disk to the host. A transfer's size is rounded up to the disk's alignment.
struct ReadDisk {
  static constexpr OperationTraits traits{"disk_read", OperationKind::disk, WorkKind::disk_read};
  View y, x;
  std::int64_t count;

  [[nodiscard]] Elements elements() const { return {x, y, count}; }
  void access(AccessList& list, const PlanSizes&) const { list.transfer(y, x, count); }
};

/// From the host to the disk, likewise.
struct WriteDisk {
  static constexpr OperationTraits traits{"disk_write", OperationKind::disk, WorkKind::disk_write};
  View y, x;
  std::int64_t count;

  [[nodiscard]] Elements elements() const { return {x, y, count}; }
  void access(AccessList& list, const PlanSizes&) const { list.transfer(y, x, count); }
};

using Transfers = OperationList<Copy, ReadDisk, WriteDisk>;

// Collectives over the group, or the part of it that this rank belongs to; sums are formed in fp32
// in rank order, averages divided, then rounded once.

/// A collective for those who need not know which it is.
struct Collective {
  View data;              ///< what this rank sends
  std::int64_t count;     ///< as the group's function counts: elements, or elements a rank
  std::int64_t elements;  ///< of all ranks' parts
  RankRange among = {};
  int root = -1;
};

struct AllReduceAverage {
  static constexpr OperationTraits traits{"all_reduce", OperationKind::collective,
                                          WorkKind::all_reduce};
  View data;
  std::int64_t count;
  RankRange among = {};

  void access(AccessList& list, const PlanSizes&) const { list.update(data, count); }
  [[nodiscard]] Collective collective(int) const { return {data, count, count, among}; }
};

struct AllReduceSum {
  static constexpr OperationTraits traits{"all_reduce_sum", OperationKind::collective,
                                          WorkKind::all_reduce};
  View data;
  std::int64_t count;

  void access(AccessList& list, const PlanSizes&) const { list.update(data, count); }
  [[nodiscard]] Collective collective(int) const { return {data, count, count}; }
};

/// Only the root's data are the average after it, the others' are undefined.
struct ReduceAverage {
  static constexpr OperationTraits traits{"reduce", OperationKind::collective, WorkKind::reduce};
  View data;
  std::int64_t count;
  int root;

  void access(AccessList& list, const PlanSizes&) const { list.update(data, count); }
  [[nodiscard]] Collective collective(int) const { return {data, count, count, {}, root}; }
};

/// `in` is [ranks][count_per_rank]; out is outside of it.
struct ReduceScatterAverage {
  static constexpr OperationTraits traits{"reduce_scatter", OperationKind::collective,
                                          WorkKind::reduce_scatter};
  View out, in;
  std::int64_t count_per_rank;
  RankRange among = {};

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(in, count_per_rank * among.size(of.group_size));
    list.write(out, count_per_rank);
  }
  [[nodiscard]] Collective collective(int group_size) const {
    return {in, count_per_rank, count_per_rank * among.size(group_size), among};
  }
};

/// `out` is [ranks][count_per_rank]; `in` may be its own slice of it.
struct AllGather {
  static constexpr OperationTraits traits{"all_gather", OperationKind::collective,
                                          WorkKind::all_gather};
  View out, in;
  std::int64_t count_per_rank;
  RankRange among = {};

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(in, count_per_rank);
    list.write(out, count_per_rank * among.size(of.group_size));
  }
  [[nodiscard]] Collective collective(int group_size) const {
    return {in, count_per_rank, count_per_rank * among.size(group_size), among};
  }
};

/// `in` and `out`, which do not overlap, are [ranks][count_per_rank]: part r of `in` goes to rank
/// r, part r of `out` comes from it.
struct AllToAll {
  static constexpr OperationTraits traits{"all_to_all", OperationKind::collective,
                                          WorkKind::all_to_all};
  View out, in;
  std::int64_t count_per_rank;
  RankRange among = {};

  void access(AccessList& list, const PlanSizes& of) const {
    list.read(in, count_per_rank * among.size(of.group_size));
    list.write(out, count_per_rank * among.size(of.group_size));
  }
  [[nodiscard]] Collective collective(int group_size) const {
    return {in, count_per_rank, count_per_rank * among.size(group_size), among};
  }
};

using Collectives = OperationList<AllReduceAverage, AllReduceSum, ReduceAverage,
                                  ReduceScatterAverage, AllGather, AllToAll>;

// Numbers of the step, kept by the executor in double, outside of all tensors.

/// Mean over the targets of the group's global batch; the step's loss.
struct FinishLoss {
  static constexpr OperationTraits traits{"finish_loss", OperationKind::exchange,
                                          WorkKind::exchange, StepSum::loss, true};
  static constexpr bool over_group = true;
  std::int64_t global_targets;
};

/// fp16: the squares become those of the ranks `among` where `over_group`. The step is skipped if
/// they are infinite or NaN, which they are exactly if a gradient is. The loss scale moves on, and
/// the update divides by what it is then, as in DeepSpeed: so also in the step that raises it.
struct CheckOverflow {
  static constexpr OperationTraits traits{"check_overflow", OperationKind::exchange,
                                          WorkKind::exchange, StepSum::squares, true};
  bool over_group;
  RankRange among = {};
};

/// scale = 1 / max(1, (norm + 1e-6) / clip), as DeepSpeed; norm over the ranks where `over_group`.
/// In fp16 the norm is that of the gradients without the loss scale, and `scale` divides by that,
/// too.
struct ClipFactor {
  static constexpr OperationTraits traits{"clip_factor", OperationKind::exchange,
                                          WorkKind::exchange, StepSum::squares, true};
  double clip;
  bool over_group;
  RankRange among = {};
};

using Exchanges = OperationList<FinishLoss, CheckOverflow, ClipFactor>;

}  // namespace dstune::op
