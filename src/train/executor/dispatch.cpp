#include "executor/dispatch.hpp"

#include <algorithm>
#include <string_view>

namespace dstune::train {
namespace {

constexpr int num_queues = 4;

/// Returns the queue of a stream of the device.
constexpr int queue_of(Stream stream) {
  return stream == Stream::copy ? num_queues - 1 : static_cast<int>(stream);
}
static_assert(queue_of(Stream::compute) == 0 && queue_of(Stream::gather) == 2);

/// Names for profilers what is asked of the queues while it lives.
class NamedRange {
 public:
  NamedRange(Queues& queues, std::string_view name) : queues_(queues) {
    queues_.begin_range(name.data());
  }
  ~NamedRange() { queues_.end_range(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  Queues& queues_;
};

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
    : state_{plan, device, memory, disk, group, seed},
      queues_(device.queues()),
      events_(static_cast<std::size_t>(plan.num_events)) {
  const Queues::Numbers all = numbers(plan);
  trace_event_ = all.events - 1;
  first_trace_stamp_ = all.stamps - trace_stamps;
  phases_.reserve(static_cast<std::size_t>(first_trace_stamp_));
}

void Dispatch::use(Stream stream) {
  state_.stream = stream;
  if (is_of_device(stream)) queues_.use(queue_of(stream));
}

void Dispatch::run(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (step.stream != state_.stream) use(step.stream);
    if (trace_ != nullptr) {
      trace(step);
    } else {
      run(step.operation);
    }
  }
}

void Dispatch::run(const Operation& operation) {
  const NamedRange range(queues_, traits_of(operation).name);
  switch (kind_of(operation)) {
    case OperationKind::order:
      return visit_kind<OperationKind::order>([this](const auto& o) { follow(o); }, operation);
    case OperationKind::arithmetic:
      return run_arithmetic(state_, operation);
    case OperationKind::copy:
    case OperationKind::disk:
    case OperationKind::collective:
    case OperationKind::exchange:
      return run_communication(state_, operation);
  }
}

void Dispatch::begin_micro_step(std::int64_t micro_step) {
  use(Stream::compute);
  if (trace_ != nullptr) read_stamps();
  state_.inputs.begin_micro_step(step_, micro_step);
  if (trace_ != nullptr) end_operation(nullptr);
}

// Order.

void Dispatch::follow(const op::Record& o) {
  Event& event = events_[static_cast<std::size_t>(o.event)];
  event = {state_.stream, {}};
  if (state_.stream == Stream::disk_read) event.transfers.reads = state_.disk->num_reads();
  if (state_.stream == Stream::disk_write) event.transfers.writes = state_.disk->num_writes();
  if (is_of_device(state_.stream)) queues_.record(o.event);
}

void Dispatch::follow(const op::Wait& o) {
  const Event& event = events_[static_cast<std::size_t>(o.event)];
  if (!is_of_device(event.recorded_on)) {
    state_.wait_for(event.transfers);
  } else if (is_of_device(state_.stream)) {
    queues_.wait(o.event);
  } else {
    queues_.finish(o.event);
  }
}

// The step's scalars and times.

void Dispatch::begin_training() {
  state_.scaler = LossScaler(state_.plan.config);
  state_.updates = 0;
  use(Stream::compute);
  state_.inputs.begin_training();
}

void Dispatch::begin_step(std::int64_t step, StepTrace* trace, TraceClock clock) {
  step_ = step;
  state_.begin_step();
  state_.is_traced = trace != nullptr;
  trace_ = trace;
  trace_clock_ = clock;
  if (trace_ != nullptr) operation_began_s_ = seconds_by(clock);
  phases_.clear();
  use(Stream::compute);
  begin_phase(Phase::forward);
  state_.inputs.begin_step();
}

void Dispatch::begin_phase(Phase phase) {
  queues_.stamp(static_cast<int>(phases_.size()));
  phases_.push_back(phase);
}

void Dispatch::add_up_phases() {
  for (std::size_t stamp = 0; stamp + 1 < phases_.size(); ++stamp) {
    state_.outcome.phase_s[static_cast<std::size_t>(phases_[stamp])] +=
        queues_.seconds_between(static_cast<int>(stamp), static_cast<int>(stamp) + 1);
  }
}

const StepOutcome& Dispatch::end_step() {
  if (trace_ != nullptr) read_stamps();
  use(Stream::compute);
  begin_phase(Phase::update);  // of which there is nothing more
  queues_.finish_all();
  if (state_.unfinished_loss != nullptr) state_.finish_loss();
  if (state_.has_clipped) state_.outcome.gradient_norm = state_.inputs.norm_of_host();
  add_up_phases();
  if (!state_.outcome.skipped) ++state_.updates;
  return state_.outcome;
}

// Operations that are noted once and asked for as a whole.

bool Dispatch::is_recordable(const std::vector<Step>& steps) {
  return std::ranges::all_of(steps, [](const Step& step) {
    const OperationTraits& traits = traits_of(step.operation);
    return is_of_device(step.stream) && traits.kind != OperationKind::disk &&
           !traits.takes_numbers_of_step;
  });
}

Dispatch::Recorded Dispatch::record(const std::vector<Step>& steps) {
  Recorder& recorder = *queues_.recorder();
  const std::size_t first = phases_.size();
  Recorded recorded{.work = nullptr, .phases = {}, .loss_scale = state_.scaler.scale()};
  const auto leave = [&] {
    phases_.resize(first);
    state_.stream = Stream::compute;
  };
  try {
    recorder.begin(static_cast<int>(first));
    state_.stream = Stream::compute;
    run(steps);
    recorded.work = recorder.end();
  } catch (...) {
    recorder.drop();
    leave();
    throw;
  }
  recorded.phases.assign(phases_.begin() + static_cast<std::ptrdiff_t>(first), phases_.end());
  leave();
  return recorded;
}

void Dispatch::replay(const Recorded& recorded) {
  const NamedRange range(queues_, "recorded micro-step");
  queues_.recorder()->replay(*recorded.work, static_cast<int>(phases_.size()));
  phases_.insert(phases_.end(), recorded.phases.begin(), recorded.phases.end());
  state_.stream = Stream::compute;
}

// The times of traced operations, one after the other; timed steps are not traced.

Dispatch::TracedBy Dispatch::traced_by(const Step& step) const {
  if (!state_.device.is_asynchronous() || !is_of_device(step.stream)) return TracedBy::host;
  const OperationKind kind = kind_of(step.operation);
  if (kind == OperationKind::arithmetic || kind == OperationKind::copy) return TracedBy::stamps;
  // The disk and other ranks have a part in these.
  if (kind != OperationKind::order) return TracedBy::host;
  const auto* const wait = std::get_if<op::Wait>(&step.operation);
  return wait == nullptr || is_of_device(events_[static_cast<std::size_t>(wait->event)].recorded_on)
             ? TracedBy::nothing
             : TracedBy::host;
}

void Dispatch::trace(const Step& step) {
  switch (traced_by(step)) {
    case TracedBy::nothing:
      run(step.operation);
      trace_->push_back({&step.operation, 0});
      return;
    case TracedBy::stamps:
      return trace_by_stamps(step);
    case TracedBy::host:
      read_stamps();
      run(step.operation);
      return end_operation(&step.operation);
  }
}

void Dispatch::end_operation(const Operation* operation) {
  queues_.finish_all();
  const double now_s = seconds_by(trace_clock_);
  trace_->push_back({operation, now_s - operation_began_s_});
  operation_began_s_ = now_s;
}

void Dispatch::trace_by_stamps(const Step& step) {
  if (static_cast<int>(stamped_.size()) == trace_stamps / 2) read_stamps();
  const auto stamp = [&](int number) {
    queues_.stamp(first_trace_stamp_ + number);
    return number;
  };
  const int number = 2 * static_cast<int>(stamped_.size());
  if (last_stamp_ != no_stamp && step.stream != stamped_stream_) {
    // One operation at a time, whichever queues they are in.
    use(stamped_stream_);
    queues_.record(trace_event_);
    use(step.stream);
    queues_.wait(trace_event_);
    last_stamp_ = no_stamp;
  }
  const int first = last_stamp_ == no_stamp ? stamp(number) : last_stamp_;
  run(step.operation);
  last_stamp_ = stamp(number + 1);
  stamped_stream_ = step.stream;
  stamped_.push_back({trace_->size(), first, last_stamp_});
  trace_->push_back({&step.operation, 0});
}

void Dispatch::read_stamps() {
  queues_.finish_all();
  for (const auto& [place, first, last] : stamped_) {
    (*trace_)[place].seconds =
        queues_.seconds_between(first_trace_stamp_ + first, first_trace_stamp_ + last);
  }
  stamped_.clear();
  last_stamp_ = no_stamp;
  operation_began_s_ = seconds_by(trace_clock_);
}

}  // namespace dstune::train
