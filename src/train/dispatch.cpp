#include "dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "dstune/base/error.hpp"
#include "trace_clock.hpp"

namespace dstune::train {

Dispatch::Dispatch(const StepPlan& plan, const kernels::Table& table, PlannedMemory& memory,
                   DiskFile* disk, ProcessGroup& group, std::uint64_t seed)
    : plan_(plan),
      table_(table),
      memory_(memory),
      disk_(disk),
      group_(group),
      seed_(seed),
      angles_(rotary_angles(plan.model, plan.config.sequence_length)),
      micro_batch_(plan, seed),
      sums_(static_cast<std::size_t>(group.size())),
      scaler_(plan.config),
      events_(static_cast<std::size_t>(plan.num_events)) {}

void Dispatch::run(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    stream_ = step.stream;
    std::visit(*this, step.operation);
    if (trace_ != nullptr) end_operation(&step.operation);
  }
}

void Dispatch::begin_micro_step(std::int64_t micro_step) {
  micro_batch_.fill(step_, micro_step);
  if (trace_ != nullptr) end_operation(nullptr);
}

void Dispatch::end_operation(const Operation* operation) {
  const double now_s = seconds_by(trace_clock_);
  trace_->push_back({operation, now_s - operation_began_s_});
  operation_began_s_ = now_s;
}

// The disk.

void Dispatch::operator()(const op::Record& o) {
  Transfers& event = events_[static_cast<std::size_t>(o.event)];
  event = {};
  if (stream_ == Stream::disk_read) event.reads = disk_->num_reads();
  if (stream_ == Stream::disk_write) event.writes = disk_->num_writes();
}

void Dispatch::operator()(const op::Wait& o) {
  wait_for(events_[static_cast<std::size_t>(o.event)]);
}

void Dispatch::wait_for(const Transfers& transfers) {
  if (transfers.reads > 0) disk_->wait_for_reads(transfers.reads);
  if (transfers.writes > 0) disk_->wait_for_writes(transfers.writes);
}

std::int64_t Dispatch::transfer_bytes(const View& view, std::int64_t count) const {
  const std::int64_t bytes = count * size_bytes(memory_.type(view));
  return (bytes + disk_alignment_bytes - 1) / disk_alignment_bytes * disk_alignment_bytes;
}

void Dispatch::operator()(const op::ReadDisk& o) {
  disk_->read(memory_.address(o.y), memory_.file_offset_bytes(o.x), transfer_bytes(o.x, o.count));
  if (stream_ != Stream::disk_read) wait_for({.reads = disk_->num_reads()});
}

void Dispatch::operator()(const op::WriteDisk& o) {
  disk_->write(memory_.address(o.x), memory_.file_offset_bytes(o.y), transfer_bytes(o.y, o.count));
  if (stream_ != Stream::disk_write) wait_for({.writes = disk_->num_writes()});
}

// The step's scalars and times.

void Dispatch::begin_training() {
  scaler_ = LossScaler(plan_.config);
  updates_ = 0;
}

void Dispatch::begin_step(std::int64_t step, StepTrace* trace, TraceClock clock) {
  step_ = step;
  loss_sum_ = 0;
  squares_ = 0;
  gradient_scale_ = 1;
  outcome_ = {};
  outcome_.loss_scale = scaler_.scale();
  phase_ = Phase::forward;
  trace_ = trace;
  trace_clock_ = clock;
  phase_began_ = Clock::now();
  if (trace_ != nullptr) operation_began_s_ = seconds_by(clock);
}

void Dispatch::end_phase() {
  const Clock::time_point now = Clock::now();
  outcome_.phase_s[static_cast<std::size_t>(phase_)] +=
      std::chrono::duration<double>(now - phase_began_).count();
  phase_began_ = now;
}

const StepOutcome& Dispatch::end_step() {
  end_phase();
  if (!outcome_.skipped) ++updates_;
  return outcome_;
}

void Dispatch::operator()(const op::Mark& o) {
  end_phase();
  phase_ = o.phase;
}

double Dispatch::sum_over(const RankRange& among, double mine) {
  group_.exchange_into(std::span<const double>(&mine, 1), sums_);
  double sum = 0;
  for (int index = 0; index < among.size(group_.size()); ++index)
    sum += sums_[static_cast<std::size_t>(among.rank(index))];
  return sum;
}

void Dispatch::operator()(const op::AccumulateLoss& o) {
  table_.sum_f32(at<float>(o.losses), o.rows, &loss_sum_);
}

void Dispatch::operator()(const op::FinishLoss& o) {
  outcome_.loss = sum_over({}, loss_sum_) / static_cast<double>(o.global_targets);
}

void Dispatch::operator()(const op::AccumulateSquares& o) {
  table_.sum_of_squares(type(o.gradient), at(o.gradient), o.count, &squares_);
}

void Dispatch::operator()(const op::CheckOverflow& o) {
  // Squares of halves are finite in double, and so are sums of as many as memory holds.
  if (o.over_group) squares_ = sum_over(o.among, squares_);
  const LossScaler::Verdict verdict = scaler_.end_step(!std::isfinite(squares_));
  outcome_.skipped = verdict != LossScaler::Verdict::update;
  outcome_.scale_exhausted = verdict == LossScaler::Verdict::exhausted;
  gradient_scale_ = static_cast<float>(1.0 / scaler_.scale());
}

void Dispatch::operator()(const op::ClipFactor& o) {
  const double squares = o.over_group ? sum_over(o.among, squares_) : squares_;
  outcome_.gradient_norm = std::sqrt(squares) / scaler_.scale();
  // DeepSpeed's formula, with its 1e-6.
  const double divisor = std::max(1.0, (outcome_.gradient_norm + 1e-6) / o.clip);
  gradient_scale_ = static_cast<float>(1.0 / (divisor * scaler_.scale()));
}

void Dispatch::operator()(const op::UpdateParameters& o) {
  const View moment = o.m ? o.m : o.v;
  const kernels::UpdateTensors tensors{.master_type = type(o.master),
                                       .master = at(o.master),
                                       .moment_type = moment ? type(moment) : kernels::DType::f32,
                                       .m = at(o.m),
                                       .v = at(o.v),
                                       .gradient_type = type(o.gradient),
                                       .gradient = at(o.gradient),
                                       .model_type = o.model ? type(o.model) : kernels::DType::f32,
                                       .model = at(o.model)};
  const UpdateNumbers numbers{
      .update = updates_,
      .gradient_scale = gradient_scale_,
      .on_host = plan_.tensors[static_cast<std::size_t>(o.master.tensor)].memory == Memory::host};
  const OptimizerConfig& optimizer = plan_.config.optimizer;
  switch (optimizer.kind) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return table_.adam(adam_step(optimizer, numbers), tensors, o.count);
    case OptimizerKind::lion:
      return table_.lion(lion_step(optimizer, numbers), tensors, o.count);
    case OptimizerKind::sgd:
      return table_.sgd(sgd_step(optimizer, numbers), tensors, o.count);
    case OptimizerKind::adagrad:
      return table_.adagrad(adagrad_step(optimizer, numbers), tensors, o.count);
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
