/// The operations that move data between memories and ranks, or agree on numbers.

#include <algorithm>
#include <cmath>

#include "dstune/base/error.hpp"
#include "executor/dispatch.hpp"

namespace dstune::train {
namespace {

/// One overload an operation of these kinds; one that is missing does not compile.
class Communication {
 public:
  explicit Communication(StepState& state) : s_(state) {}

  void operator()(const op::Copy& o) const {
    const std::int64_t bytes = o.count * size_bytes(s_.memory.type(o.x));
    require(s_.memory.type(o.y) == s_.memory.type(o.x), "copying does not convert");
    if (s_.memory.memory(o.y) == s_.memory.memory(o.x)) {
      const kernels::DType type = kernel_type(s_.memory.type(o.x));
      s_.table().convert(type, at(o.y), type, at(o.x), o.count);
    } else {
      s_.queues.copy(at(o.y), at(o.x), bytes);
    }
  }

  void operator()(const op::ReadDisk& o) const {
    if (is_of_device(s_.stream)) s_.queues.finish_used();
    s_.disk->read(at(o.y), s_.memory.file_offset_bytes(o.x), block_bytes(o.x, o.count));
    if (s_.stream != Stream::disk_read) s_.wait_for({.reads = s_.disk->num_reads()});
  }

  void operator()(const op::WriteDisk& o) const {
    if (is_of_device(s_.stream)) s_.queues.finish_used();
    s_.disk->write(at(o.x), s_.memory.file_offset_bytes(o.y), block_bytes(o.y, o.count));
    if (s_.stream != Stream::disk_write) s_.wait_for({.writes = s_.disk->num_writes()});
  }

  void operator()(const op::AllReduceAverage& o) const {
    s_.group.all_reduce_average(at(o.data), o.count, s_.memory.type(o.data), o.among);
  }
  void operator()(const op::AllReduceSum& o) const {
    s_.group.all_reduce_sum(at(o.data), o.count, s_.memory.type(o.data));
  }
  void operator()(const op::ReduceAverage& o) const {
    s_.group.reduce_average(at(o.data), o.count, s_.memory.type(o.data), o.root);
  }
  void operator()(const op::ReduceScatterAverage& o) const {
    s_.group.reduce_scatter_average(at(o.out), at(o.in), o.count_per_rank, s_.memory.type(o.in),
                                    o.among);
  }
  void operator()(const op::AllGather& o) const {
    s_.group.all_gather(at(o.out), at(o.in), o.count_per_rank, s_.memory.type(o.in), o.among);
  }
  void operator()(const op::AllToAll& o) const {
    s_.group.all_to_all(at(o.out), at(o.in), o.count_per_rank, s_.memory.type(o.in), o.among);
  }

  void operator()(const op::FinishLoss& o) const {
    s_.inputs.send_sums();
    s_.unfinished_loss = &o;
    // A device goes on to the update meanwhile.
    if (!s_.device.is_asynchronous() || s_.is_traced) s_.finish_loss();
  }

  void operator()(const op::CheckOverflow& o) const {
    // The host needs it: it decides whether there is an update. So does DeepSpeed's, of all stages.
    fetch_squares();
    // Squares of halves are finite in double, and so are sums of as many as memory holds.
    if (o.over_group) s_.squares = s_.sum_over(o.among, s_.squares);
    const LossScaler::Verdict verdict = s_.scaler.end_step(!std::isfinite(s_.squares));
    s_.outcome.skipped = verdict != LossScaler::Verdict::update;
    s_.outcome.scale_exhausted = verdict == LossScaler::Verdict::exhausted;
    s_.gradient_scale = static_cast<float>(1.0 / s_.scaler.scale());
  }

  void operator()(const op::ClipFactor& o) const {
    if (s_.clips_on_device) return clip_on_device(o);
    fetch_squares();
    const double squares = o.over_group ? s_.sum_over(o.among, s_.squares) : s_.squares;
    s_.device.host_kernels().clip_factor(&squares, 1, o.clip, s_.scaler.scale(),
                                         &s_.outcome.gradient_norm, &s_.gradient_scale);
  }

 private:
  [[nodiscard]] std::byte* at(const View& view) const { return s_.memory.address(view); }
  [[nodiscard]] std::int64_t block_bytes(const View& view, std::int64_t count) const {
    const std::int64_t bytes = count * size_bytes(s_.memory.type(view));
    return (bytes + disk_alignment_bytes - 1) / disk_alignment_bytes * disk_alignment_bytes;
  }

  /// The host waits.
  void fetch_squares() const {
    if (s_.has_squares) return;
    s_.inputs.send_sums();
    s_.squares = s_.inputs.wait_for_sums().squares;
    s_.has_squares = true;
  }

  void clip_on_device(const op::ClipFactor& o) const {
    const StepInputs& inputs = s_.inputs;
    const double* squares = inputs.squares();
    int ranks = 1;
    if (o.over_group) {
      constexpr std::int64_t words_of_double = sizeof(double) / sizeof(std::int32_t);
      s_.group.all_gather(inputs.squares_of_ranks(), squares, words_of_double, DType::i32, o.among);
      squares = inputs.squares_of_ranks();
      ranks = o.among.size(s_.group.size());
    }
    s_.table().clip_factor(squares, ranks, o.clip, s_.scaler.scale(), inputs.norm(),
                           inputs.gradient_scale());
    s_.inputs.send_norm();
    s_.has_clipped = true;
  }

  StepState& s_;
};

}  // namespace

bool needs_norm_on_host(const StepPlan& plan) {
  const auto is_update_of_host = [](const Step& step) {
    return step.stream == Stream::host &&
           std::holds_alternative<op::UpdateParameters>(step.operation);
  };
  return plan.config.precision == Precision::fp16 ||
         std::ranges::any_of(plan.cycle, [&](const Segment& segment) {
           return std::ranges::any_of(segment.steps, is_update_of_host);
         });
}

void StepState::begin_step() {
  unfinished_loss = nullptr;
  squares = 0;
  has_squares = false;
  gradient_scale = 1;
  has_clipped = false;
  outcome = {};
  outcome.loss_scale = scaler.scale();
}

void StepState::wait_for(const DiskTransfers& transfers) {
  if (transfers.reads > 0) disk->wait_for_reads(transfers.reads);
  if (transfers.writes > 0) disk->wait_for_writes(transfers.writes);
}

double StepState::sum_over(const RankRange& among, double mine) {
  group.exchange_into(std::span<const double>(&mine, 1), sums);
  double sum = 0;
  for (int index = 0; index < among.size(group.size()); ++index)
    sum += sums[static_cast<std::size_t>(among.rank(index))];
  return sum;
}

void StepState::finish_loss() {
  outcome.loss = sum_over({}, inputs.wait_for_sums().loss) /
                 static_cast<double>(unfinished_loss->global_targets);
  unfinished_loss = nullptr;
}

void run_communication(StepState& state, const Operation& operation) {
  using enum OperationKind;
  visit_kind<copy, disk, collective, exchange>(Communication(state), operation);
}

}  // namespace dstune::train
