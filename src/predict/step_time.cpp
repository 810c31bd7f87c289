#include "dstune/predict/step_time.hpp"

#include <algorithm>

namespace dstune {
namespace {

/// One rank's streams. Time that passes is the compute stream's; where streams do not run beside
/// each other it is the only one but for the disk's, which have threads of their own anywhere.
class Clock {
 public:
  Clock(const StepPlan& plan, OperationTimes& times)
      : plan_(plan),
        times_(times),
        is_concurrent_(times.profile().concurrent_streams),
        events_(static_cast<std::size_t>(plan.num_events)) {}

  /// A segment begins and ends with all streams idle.
  void run(const Segment& segment) {
    now_.fill(0);
    phase_began_s_ = 0;
    const bool is_middle = segment.kind == Segment::Kind::middle_micro;
    counted_ = is_middle ? &result_.middle : &result_.ends;
    if (segment.kind != Segment::Kind::update && segment.kind != Segment::Kind::guarded_update) {
      pass(Stream::compute, work_of_tokens(plan_));
      if (!is_middle) ++result_.num_ends;
    }
    for (const Step& step : segment.steps) take(step);
    end_phase();
  }

  [[nodiscard]] CycleTime result() {
    result_.ends.phase_s[static_cast<std::size_t>(Phase::update)] +=
        times_.profile().step_constant_s;
    for (StepTime* time : {&result_.ends, &result_.middle})
      for (const double phase_s : time->phase_s) time->step_s += phase_s;
    return result_;
  }

 private:
  struct Event {
    double at_s = 0;
    bool is_communication = false;
  };

  void take(const Step& step) {
    // Two of three operations.
    if (std::holds_alternative<op::Acquire>(step.operation) ||
        std::holds_alternative<op::Release>(step.operation))
      return;
    if (const auto* mark = std::get_if<op::Mark>(&step.operation)) {
      end_phase();
      phase_ = mark->phase;
    } else if (const auto* record = std::get_if<op::Record>(&step.operation)) {
      events_[static_cast<std::size_t>(record->event)] = {
          now(step.stream), step.stream == Stream::reduce || step.stream == Stream::gather};
    } else if (const auto* wait = std::get_if<op::Wait>(&step.operation)) {
      wait_for(step.stream, events_[static_cast<std::size_t>(wait->event)]);
    } else if (const auto work = work_of(plan_, step.operation)) {
      pass(step.stream, *work);
    }
  }

  void wait_for(Stream stream, const Event& event) {
    const double waited_s = event.at_s - now(stream);
    if (waited_s <= 0) return;
    now(stream) = event.at_s;
    if (stream == Stream::compute && event.is_communication) expose(waited_s);
  }

  void pass(Stream stream, const Work& work) {
    double busy_s = times_.slowdown() * times_.seconds(work);
    counted_->kind_s[static_cast<std::size_t>(work.kind)] += busy_s;
    const bool on_compute = place_of(stream) == place_of(Stream::compute);
    if (on_compute && is_collective(work.kind)) expose(busy_s);
    if (is_concurrent_ && on_compute) {
      const double others_end_s = std::max(now(Stream::reduce), now(Stream::gather));
      const double beside_s = std::clamp(others_end_s - now(stream), 0.0, busy_s);
      busy_s += times_.profile().overlap_slowdown * beside_s;
    }
    now(stream) += busy_s;
  }

  void end_phase() {
    counted_->phase_s[static_cast<std::size_t>(phase_)] += now(Stream::compute) - phase_began_s_;
    phase_began_s_ = now(Stream::compute);
  }
  void expose(double seconds) {
    counted_->exposed_communication_s[static_cast<std::size_t>(phase_)] += seconds;
  }
  [[nodiscard]] std::size_t place_of(Stream stream) const {
    const bool is_disk = stream == Stream::disk_read || stream == Stream::disk_write;
    return is_concurrent_ || is_disk ? static_cast<std::size_t>(stream) : 0;
  }
  [[nodiscard]] double& now(Stream stream) { return now_[place_of(stream)]; }

  const StepPlan& plan_;
  OperationTimes& times_;
  bool is_concurrent_;
  std::vector<Event> events_;
  std::array<double, num_streams> now_{};
  Phase phase_ = Phase::forward;
  double phase_began_s_ = 0;
  CycleTime result_;
  StepTime* counted_ = nullptr;  ///< the part that the segment is of
};

}  // namespace

StepTime CycleTime::with_micro_steps(std::int64_t count) const {
  const auto weight = static_cast<double>(count - num_ends);
  StepTime time = ends;
  const auto add = [&](auto& to, const auto& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += weight * from[i];
  };
  time.step_s += weight * middle.step_s;
  add(time.phase_s, middle.phase_s);
  add(time.exposed_communication_s, middle.exposed_communication_s);
  add(time.kind_s, middle.kind_s);
  return time;
}

CycleTime cycle_time(const StepPlan& plan, OperationTimes& times) {
  Clock clock(plan, times);
  for (const Segment& segment : plan.cycle) clock.run(segment);
  return clock.result();
}

StepTime step_time(const StepPlan& plan, OperationTimes& times) {
  return cycle_time(plan, times).with_micro_steps(plan.config.accumulation_steps);
}

}  // namespace dstune
