/// What operations take, one after the other, apart from steps that are timed.

#include "dispatch.hpp"
#include "trace_clock.hpp"

namespace dstune::train {
namespace {

struct IsOrder {
  template <class Op>
  bool operator()(const Op&) const {
    return is_one_of<Op, op::Acquire, op::Release, op::Mark, op::Record, op::Wait>;
  }
};

/// What others than the device's queues have a part in: the host, a disk, other ranks.
struct HasOthers {
  template <class Op>
  bool operator()(const Op&) const {
    return is_one_of<Op, op::ReadDisk, op::WriteDisk, op::AllReduceAverage, op::AllReduceSum,
                     op::ReduceAverage, op::ReduceScatterAverage, op::AllGather, op::AllToAll,
                     op::FinishLoss, op::CheckOverflow, op::ClipFactor>;
  }
};

}  // namespace

Dispatch::TracedBy Dispatch::traced_by(const Step& step) const {
  if (!device_.is_asynchronous() || !is_of_device(step.stream)) return TracedBy::host;
  if (std::visit(IsOrder{}, step.operation)) {
    const auto* const wait = std::get_if<op::Wait>(&step.operation);
    const bool is_of_queues =
        wait == nullptr || is_of_device(events_[static_cast<std::size_t>(wait->event)].recorded_on);
    return is_of_queues ? TracedBy::nothing : TracedBy::host;
  }
  return std::visit(HasOthers{}, step.operation) ? TracedBy::host : TracedBy::stamps;
}

void Dispatch::trace(const Step& step) {
  switch (traced_by(step)) {
    case TracedBy::nothing:
      std::visit(*this, step.operation);
      trace_->push_back({&step.operation, 0});
      return;
    case TracedBy::stamps:
      return trace_by_stamps(step);
    case TracedBy::host:
      read_stamps();
      std::visit(*this, step.operation);
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
  std::visit(*this, step.operation);
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
