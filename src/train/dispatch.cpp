#include "dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "dstune/base/error.hpp"
#include "trace_clock.hpp"

namespace dstune::train {
namespace {

constexpr int num_queues = 4;

/// Of a stream of the device.
constexpr int queue_of(Stream stream) {
  return stream == Stream::copy ? num_queues - 1 : static_cast<int>(stream);
}
static_assert(queue_of(Stream::compute) == 0 && queue_of(Stream::gather) == 2);

/// Where gradients may overflow the host has asked for their squares already.
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

}  // namespace

Queues::Numbers Dispatch::numbers(const StepPlan& plan) {
  std::int64_t marks = 0;
  const auto count = [&](const Segment& segment) {
    const auto is_mark = [](const Step& step) {
      return std::holds_alternative<op::Mark>(step.operation);
    };
    marks += segment.repeat * std::ranges::count_if(segment.steps, is_mark);
  };
  std::ranges::for_each(plan.tracing, count);
  std::ranges::for_each(plan.cycle, count);
  // One at either end of a step, too.
  return {num_queues, plan.num_events + StepInputs::num_events + 1,
          static_cast<int>(marks) + 2 + trace_stamps};
}

Dispatch::Dispatch(const StepPlan& plan, Device& device, PlannedMemory& memory, DiskFile* disk,
                   ProcessGroup& group, std::uint64_t seed)
    : plan_(plan),
      device_(device),
      queues_(device.queues()),
      memory_(memory),
      disk_(disk),
      group_(group),
      seed_(seed),
      inputs_(plan, device, seed, plan.num_events),
      sums_(static_cast<std::size_t>(group.size())),
      scaler_(plan.config),
      events_(static_cast<std::size_t>(plan.num_events)),
      clips_on_device_(device.is_asynchronous() && !needs_norm_on_host(plan)) {
  const Queues::Numbers all = numbers(plan);
  trace_event_ = all.events - 1;
  first_trace_stamp_ = all.stamps - trace_stamps;
  phases_.reserve(static_cast<std::size_t>(first_trace_stamp_));
}

void Dispatch::use(Stream stream) {
  stream_ = stream;
  if (is_of_device(stream)) queues_.use(queue_of(stream));
}

void Dispatch::run(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (step.stream != stream_) use(step.stream);
    if (trace_ != nullptr) {
      trace(step);
    } else {
      std::visit(*this, step.operation);
    }
  }
}

void Dispatch::begin_micro_step(std::int64_t micro_step) {
  use(Stream::compute);
  if (trace_ != nullptr) read_stamps();
  inputs_.begin_micro_step(step_, micro_step);
  if (trace_ != nullptr) end_operation(nullptr);
}

// Order.

void Dispatch::operator()(const op::Record& o) {
  Event& event = events_[static_cast<std::size_t>(o.event)];
  event = {stream_, {}};
  if (stream_ == Stream::disk_read) event.transfers.reads = disk_->num_reads();
  if (stream_ == Stream::disk_write) event.transfers.writes = disk_->num_writes();
  if (is_of_device(stream_)) queues_.record(o.event);
}

void Dispatch::operator()(const op::Wait& o) {
  const Event& event = events_[static_cast<std::size_t>(o.event)];
  if (!is_of_device(event.recorded_on)) {
    wait_for(event.transfers);
  } else if (is_of_device(stream_)) {
    queues_.wait(o.event);
  } else {
    queues_.finish(o.event);
  }
}

// The disk.

void Dispatch::wait_for(const Transfers& transfers) {
  if (transfers.reads > 0) disk_->wait_for_reads(transfers.reads);
  if (transfers.writes > 0) disk_->wait_for_writes(transfers.writes);
}

std::int64_t Dispatch::transfer_bytes(const View& view, std::int64_t count) const {
  const std::int64_t bytes = count * size_bytes(memory_.type(view));
  return (bytes + disk_alignment_bytes - 1) / disk_alignment_bytes * disk_alignment_bytes;
}

void Dispatch::operator()(const op::ReadDisk& o) {
  if (is_of_device(stream_)) queues_.finish_used();
  disk_->read(memory_.address(o.y), memory_.file_offset_bytes(o.x), transfer_bytes(o.x, o.count));
  if (stream_ != Stream::disk_read) wait_for({.reads = disk_->num_reads()});
}

void Dispatch::operator()(const op::WriteDisk& o) {
  if (is_of_device(stream_)) queues_.finish_used();
  disk_->write(memory_.address(o.x), memory_.file_offset_bytes(o.y), transfer_bytes(o.y, o.count));
  if (stream_ != Stream::disk_write) wait_for({.writes = disk_->num_writes()});
}

// The step's scalars and times.

void Dispatch::begin_training() {
  scaler_ = LossScaler(plan_.config);
  updates_ = 0;
  use(Stream::compute);
  inputs_.begin_training();
}

void Dispatch::begin_step(std::int64_t step, StepTrace* trace, TraceClock clock) {
  step_ = step;
  unfinished_loss_ = nullptr;
  squares_ = 0;
  has_squares_ = false;
  gradient_scale_ = 1;
  has_clipped_ = false;
  outcome_ = {};
  outcome_.loss_scale = scaler_.scale();
  trace_ = trace;
  trace_clock_ = clock;
  if (trace_ != nullptr) operation_began_s_ = seconds_by(clock);
  phases_.clear();
  use(Stream::compute);
  begin_phase(Phase::forward);
  inputs_.begin_step();
}

void Dispatch::begin_phase(Phase phase) {
  queues_.stamp(static_cast<int>(phases_.size()));
  phases_.push_back(phase);
}

void Dispatch::add_up_phases() {
  for (std::size_t stamp = 0; stamp + 1 < phases_.size(); ++stamp) {
    outcome_.phase_s[static_cast<std::size_t>(phases_[stamp])] +=
        queues_.seconds_between(static_cast<int>(stamp), static_cast<int>(stamp) + 1);
  }
}

const StepOutcome& Dispatch::end_step() {
  if (trace_ != nullptr) read_stamps();
  use(Stream::compute);
  begin_phase(Phase::update);  // of which there is nothing more
  queues_.finish_all();
  if (unfinished_loss_ != nullptr) finish_loss();
  if (has_clipped_) outcome_.gradient_norm = inputs_.norm_of_host();
  add_up_phases();
  if (!outcome_.skipped) ++updates_;
  return outcome_;
}

void Dispatch::operator()(const op::Mark& o) {
  begin_phase(o.phase);
}

double Dispatch::sum_over(const RankRange& among, double mine) {
  group_.exchange_into(std::span<const double>(&mine, 1), sums_);
  double sum = 0;
  for (int index = 0; index < among.size(group_.size()); ++index)
    sum += sums_[static_cast<std::size_t>(among.rank(index))];
  return sum;
}

void Dispatch::operator()(const op::AccumulateLoss& o) {
  table().sum_f32(at<float>(o.losses), o.rows, inputs_.loss());
}

void Dispatch::operator()(const op::FinishLoss& o) {
  inputs_.send_sums();
  unfinished_loss_ = &o;
  // A device goes on to the update meanwhile.
  if (!device_.is_asynchronous() || trace_ != nullptr) finish_loss();
}

void Dispatch::finish_loss() {
  outcome_.loss = sum_over({}, inputs_.wait_for_sums().loss) /
                  static_cast<double>(unfinished_loss_->global_targets);
  unfinished_loss_ = nullptr;
}

void Dispatch::operator()(const op::AccumulateSquares& o) {
  table().sum_of_squares(type(o.gradient), at(o.gradient), o.count, inputs_.squares());
}

void Dispatch::fetch_squares() {
  if (has_squares_) return;
  inputs_.send_sums();
  squares_ = inputs_.wait_for_sums().squares;
  has_squares_ = true;
}

void Dispatch::operator()(const op::CheckOverflow& o) {
  // The host needs it: it decides whether there is an update. So does DeepSpeed's, of all stages.
  fetch_squares();
  // Squares of halves are finite in double, and so are sums of as many as memory holds.
  if (o.over_group) squares_ = sum_over(o.among, squares_);
  const LossScaler::Verdict verdict = scaler_.end_step(!std::isfinite(squares_));
  outcome_.skipped = verdict != LossScaler::Verdict::update;
  outcome_.scale_exhausted = verdict == LossScaler::Verdict::exhausted;
  gradient_scale_ = static_cast<float>(1.0 / scaler_.scale());
}

void Dispatch::operator()(const op::ClipFactor& o) {
  if (clips_on_device_) return clip_on_device(o);
  fetch_squares();
  const double squares = o.over_group ? sum_over(o.among, squares_) : squares_;
  device_.host_kernels().clip_factor(&squares, 1, o.clip, scaler_.scale(), &outcome_.gradient_norm,
                                     &gradient_scale_);
}

void Dispatch::clip_on_device(const op::ClipFactor& o) {
  const double* squares = inputs_.squares();
  int ranks = 1;
  if (o.over_group) {
    constexpr std::int64_t words_of_double = sizeof(double) / sizeof(std::int32_t);
    group_.all_gather(inputs_.squares_of_ranks(), squares, words_of_double, DType::i32, o.among);
    squares = inputs_.squares_of_ranks();
    ranks = o.among.size(group_.size());
  }
  table().clip_factor(squares, ranks, o.clip, scaler_.scale(), inputs_.norm(),
                      inputs_.gradient_scale());
  inputs_.send_norm();
  has_clipped_ = true;
}

void Dispatch::operator()(const op::UpdateParameters& o) {
  const View moment = o.m ? o.m : o.v;
  const kernels::UpdateTensors tensors{
      .master_type = type(o.master),
      .master = at(o.master),
      .moment_type = moment ? type(moment) : kernels::DType::f32,
      .m = at(o.m),
      .v = at(o.v),
      .gradient_type = type(o.gradient),
      .gradient = at(o.gradient),
      .model_type = o.model ? type(o.model) : kernels::DType::f32,
      .model = at(o.model),
      .gradient_scale = has_clipped_ ? inputs_.gradient_scale() : nullptr};
  const UpdateNumbers numbers{
      .update = updates_,
      .gradient_scale = gradient_scale_,
      .on_host = plan_.tensors[static_cast<std::size_t>(o.master.tensor)].memory == Memory::host};
  const OptimizerConfig& optimizer = plan_.config.optimizer;
  switch (optimizer.kind) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return table().adam(adam_step(optimizer, numbers), tensors, o.count);
    case OptimizerKind::lion:
      return table().lion(lion_step(optimizer, numbers), tensors, o.count);
    case OptimizerKind::sgd:
      return table().sgd(sgd_step(optimizer, numbers), tensors, o.count);
    case OptimizerKind::adagrad:
      return table().adagrad(adagrad_step(optimizer, numbers), tensors, o.count);
  }
  throw LogicError("an optimizer is a known one");
}

// Collectives.

void Dispatch::operator()(const op::AllReduceAverage& o) {
  group_.all_reduce_average(at(o.data), o.count, memory_.type(o.data), o.among);
}

void Dispatch::operator()(const op::AllReduceSum& o) {
  group_.all_reduce_sum(at(o.data), o.count, memory_.type(o.data));
}

void Dispatch::operator()(const op::ReduceAverage& o) {
  group_.reduce_average(at(o.data), o.count, memory_.type(o.data), o.root);
}

void Dispatch::operator()(const op::ReduceScatterAverage& o) {
  group_.reduce_scatter_average(at(o.out), at(o.in), o.count_per_rank, memory_.type(o.in), o.among);
}

void Dispatch::operator()(const op::AllGather& o) {
  group_.all_gather(at(o.out), at(o.in), o.count_per_rank, memory_.type(o.in), o.among);
}

void Dispatch::operator()(const op::AllToAll& o) {
  group_.all_to_all(at(o.out), at(o.in), o.count_per_rank, memory_.type(o.in), o.among);
}

}  // namespace dstune::train
