/// The time of a cycle on a virtual clock.

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <variant>
#include <vector>

#include "dstune/predict/step_predictor.hpp"

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
        events_(static_cast<std::size_t>(plan.num_events) + 1) {}

  /// A segment begins and ends with all streams idle.
  void run(const Segment& segment) {
    now_.fill(0);
    links_free_s_.fill(0);
    phase_began_s_ = 0;
    const bool is_middle = segment.kind == Segment::Kind::middle_micro;
    phases_s_ = is_middle ? &middle_s_ : &ends_s_;
    if (segment.kind != Segment::Kind::update && segment.kind != Segment::Kind::guarded_update) {
      pass(Stream::compute, work_of_tokens(plan_));
      if (!is_middle) ++num_ends_;
    }
    alike_.clear();
    std::size_t next = 0;
    for (const RepeatedSteps& repeated : segment.repeated) {
      for (; next < repeated.end; ++next) take(segment.steps[next]);
      repeat(segment, repeated);
    }
    for (; next < segment.steps.size(); ++next) take(segment.steps[next]);
    end_phase();
  }

  [[nodiscard]] CycleTime result() {
    ends_s_[static_cast<std::size_t>(Phase::update)] += times_.profile().step_constant_s;
    const auto sum = [](const Phases& phases_s) {
      return std::accumulate(phases_s.begin(), phases_s.end(), 0.0);
    };
    return {sum(ends_s_), sum(middle_s_), num_ends_};
  }

 private:
  using Phases = std::array<double, 3>;  ///< by Phase

  void take(const Step& step) {
    // Two of three operations.
    if (std::holds_alternative<op::Acquire>(step.operation) ||
        std::holds_alternative<op::Release>(step.operation))
      return;
    if (const auto* mark = std::get_if<op::Mark>(&step.operation)) {
      end_phase();
      phase_ = mark->phase;
    } else if (const auto* record = std::get_if<op::Record>(&step.operation)) {
      event(record->event) = now(step.stream);
    } else if (const auto* wait = std::get_if<op::Wait>(&step.operation)) {
      now(step.stream) = std::max(now(step.stream), event(wait->event));
    } else if (const auto work = work_of(plan_, step.operation)) {
      pass(step.stream, *work);
    }
  }

  void pass(Stream stream, const Work& work) {
    pass(stream, times_.slowdown() * times_.seconds(work, stream == Stream::host),
         times_.links_of(work));
  }

  void pass(Stream stream, double busy_s, const std::optional<std::size_t>& links) {
    if (is_concurrent_ && stream == Stream::compute) {
      const double others_end_s = std::max(now(Stream::reduce), now(Stream::gather));
      const double beside_s = std::clamp(others_end_s - now(stream), 0.0, busy_s);
      busy_s += times_.profile().overlap_slowdown * beside_s;
    }
    if (links) now(stream) = std::max(now(stream), links_free_s_[*links]);
    now(stream) += busy_s;
    if (links) links_free_s_[*links] = now(stream);
  }

  /// The steps' other runs, on times that are looked up once: the same sums in the same order as
  /// those of unfolded layers.
  void repeat(const Segment& segment, const RepeatedSteps& repeated) {
    const std::vector<Timed> steps = timed(segment, repeated);
    const auto is_record = [](const Timed& step) { return step.kind == Timed::Kind::record; };
    const auto records = static_cast<int>(std::ranges::count_if(steps, is_record));
    const int index = static_cast<int>(alike_.size());
    alike_.push_back({repeated.first_event, 0});
    for (std::int64_t time = 1; time < repeated.times; ++time) {
      alike_[index].runs_events += records;
      for (const Timed& step : steps) {
        switch (step.kind) {
          case Timed::Kind::record:
            event(step.event) = now(step.stream);
            break;
          case Timed::Kind::wait:
            now(step.stream) = std::max(now(step.stream), event(step.event));
            break;
          case Timed::Kind::work:
            pass(step.stream, step.busy_s, step.links);
            break;
        }
      }
    }
  }

  struct Timed {
    enum class Kind { record, wait, work };
    Kind kind;
    Stream stream;
    int event = 0;
    double busy_s = 0;
    std::optional<std::size_t> links = {};
  };
  std::vector<Timed> timed(const Segment& segment, const RepeatedSteps& repeated) {
    std::vector<Timed> result;
    for (std::size_t index = repeated.begin; index < repeated.end; ++index) {
      const auto& [stream, operation] = segment.steps[index];
      if (const auto* record = std::get_if<op::Record>(&operation)) {
        result.push_back({Timed::Kind::record, stream, record->event});
      } else if (const auto* wait = std::get_if<op::Wait>(&operation)) {
        result.push_back({Timed::Kind::wait, stream, wait->event});
      } else if (const auto work = work_of(plan_, operation)) {
        result.push_back({Timed::Kind::work, stream, 0,
                          times_.slowdown() * times_.seconds(*work, stream == Stream::host),
                          times_.links_of(*work)});
      }
    }
    return result;
  }

  /// When an event was recorded: in the last run of its layer, where that has several.
  [[nodiscard]] double& event(int number) {
    int index = number;
    for (const Alike& each : alike_)
      if (number >= each.first_event) index += each.runs_events;
    if (index >= static_cast<int>(events_.size()))
      events_.resize(2 * static_cast<std::size_t>(index));
    return events_[static_cast<std::size_t>(index)];
  }

  void end_phase() {
    (*phases_s_)[static_cast<std::size_t>(phase_)] += now(Stream::compute) - phase_began_s_;
    phase_began_s_ = now(Stream::compute);
  }
  [[nodiscard]] std::size_t place_of(Stream stream) const {
    const bool is_disk = stream == Stream::disk_read || stream == Stream::disk_write;
    return is_concurrent_ || is_disk ? static_cast<std::size_t>(stream) : 0;
  }
  [[nodiscard]] double& now(Stream stream) { return now_[place_of(stream)]; }

  const StepPlan& plan_;
  OperationTimes& times_;
  bool is_concurrent_;
  std::vector<double> events_;  ///< when each was recorded
  /// Events from `first_event` on are of repeated steps or behind them: so many more come before.
  struct Alike {
    int first_event, runs_events;
  };
  std::vector<Alike> alike_;
  std::array<double, num_streams> now_{};
  std::array<double, 2> links_free_s_{};  ///< when the last collective of each has ended
  Phase phase_ = Phase::forward;
  double phase_began_s_ = 0;
  Phases ends_s_{}, middle_s_{};
  Phases* phases_s_ = nullptr;  ///< those of the segment
  std::int64_t num_ends_ = 0;
};

/// Tells whether steps differ in nothing but events, which are `records` further.
bool is_alike(const StepPlan& plan, const Step& step, const Step& later, int records) {
  if (step.stream != later.stream || step.operation.index() != later.operation.index())
    return false;
  if (const auto* record = std::get_if<op::Record>(&step.operation))
    return record->event + records == std::get<op::Record>(later.operation).event;
  if (const auto* wait = std::get_if<op::Wait>(&step.operation))
    return wait->event + records == std::get<op::Wait>(later.operation).event;
  if (std::holds_alternative<op::Mark>(step.operation)) return false;
  return work_of(plan, step.operation) == work_of(plan, later.operation);
}

}  // namespace

bool repeats_alike(const StepPlan& plan) {
  for (const Segment& segment : plan.cycle) {
    for (const RepeatedSteps& repeated : segment.repeated) {
      const std::size_t count = repeated.end - repeated.begin;
      if (count > repeated.begin) return false;
      int records = 0;
      for (std::size_t index = repeated.begin; index < repeated.end; ++index)
        if (std::holds_alternative<op::Record>(segment.steps[index].operation)) ++records;
      for (std::size_t index = repeated.begin; index < repeated.end; ++index) {
        const Step& step = segment.steps[index];
        if (!is_alike(plan, segment.steps[index - count], step, records)) return false;
        const auto* const wait = std::get_if<op::Wait>(&step.operation);
        if (wait != nullptr && wait->event < repeated.first_event) return false;
      }
    }
  }
  return true;
}

CycleTime cycle_time(const StepPlan& plan, OperationTimes& times) {
  Clock clock(plan, times);
  for (const Segment& segment : plan.cycle) clock.run(segment);
  return clock.result();
}

}  // namespace dstune
