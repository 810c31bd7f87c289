#include "dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace dstune::train {

Dispatch::Dispatch(const StepPlan& plan, const kernels::Table& table, PlannedMemory& memory,
                   ProcessGroup& group, std::uint64_t seed)
    : plan_(plan),
      table_(table),
      memory_(memory),
      group_(group),
      seed_(seed),
      micro_batch_(plan, seed),
      scaler_(plan.config) {}

void Dispatch::run(const std::vector<Step>& steps) {
  for (const Step& step : steps) std::visit(*this, step.operation);
}

// The step's scalars and times.

void Dispatch::begin_training() {
  scaler_ = LossScaler(plan_.config);
  updates_ = 0;
}

void Dispatch::begin_step(std::int64_t step) {
  step_ = step;
  loss_sum_ = 0;
  squares_ = 0;
  gradient_scale_ = 1;
  outcome_ = {};
  outcome_.loss_scale = scaler_.scale();
  phase_ = Phase::forward;
  phase_began_ = Clock::now();
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

double Dispatch::group_sum(double mine) {
  double sum = 0;
  for (double value : group_.exchange(std::span<const double>(&mine, 1))) sum += value;
  return sum;
}

void Dispatch::operator()(const op::AccumulateLoss& o) {
  loss_sum_ += table_.sum_f32(at<float>(o.losses), o.rows);
}

void Dispatch::operator()(const op::FinishLoss& o) {
  outcome_.loss = group_sum(loss_sum_) / static_cast<double>(o.global_targets);
}

void Dispatch::operator()(const op::AccumulateSquares& o) {
  squares_ += table_.sum_of_squares(type(o.gradient), at(o.gradient), o.count);
}

void Dispatch::operator()(const op::CheckOverflow& o) {
  // Squares of halves are finite in double, and so are sums of as many as memory holds.
  if (o.over_group) squares_ = group_sum(squares_);
  const LossScaler::Verdict verdict = scaler_.end_step(!std::isfinite(squares_));
  outcome_.skipped = verdict != LossScaler::Verdict::update;
  outcome_.scale_exhausted = verdict == LossScaler::Verdict::exhausted;
  gradient_scale_ = static_cast<float>(1.0 / scaler_.scale());
}

void Dispatch::operator()(const op::ClipFactor& o) {
  const double squares = o.over_group ? group_sum(squares_) : squares_;
  outcome_.gradient_norm = std::sqrt(squares) / scaler_.scale();
  // DeepSpeed's formula, with its 1e-6.
  const double divisor = std::max(1.0, (outcome_.gradient_norm + 1e-6) / o.clip);
  gradient_scale_ = static_cast<float>(1.0 / (divisor * scaler_.scale()));
}

void Dispatch::operator()(const op::Adam& o) {
  const bool separate_model = static_cast<bool>(o.model);
  table_.adam(adam_step(plan_.config.optimizer, updates_, gradient_scale_), at<float>(o.master),
              at<float>(o.m), at<float>(o.v), type(o.gradient), at(o.gradient),
              separate_model ? type(o.model) : kernels::DType::f32, at(o.model), o.count);
}

// Collectives.

void Dispatch::operator()(const op::AllReduceAverage& o) {
  group_.all_reduce_average(at(o.data), o.count, memory_.type(o.data));
}

void Dispatch::operator()(const op::ReduceAverage& o) {
  group_.reduce_average(at(o.data), o.count, memory_.type(o.data), o.root);
}

void Dispatch::operator()(const op::ReduceScatterAverage& o) {
  group_.reduce_scatter_average(at(o.out), at(o.in), o.count_per_rank, memory_.type(o.in));
}

void Dispatch::operator()(const op::AllGather& o) {
  group_.all_gather(at(o.out), at(o.in), o.count_per_rank, memory_.type(o.in));
}

}  // namespace dstune::train
