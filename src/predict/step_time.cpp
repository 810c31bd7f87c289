#include "dstune/predict/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace dstune {
namespace {

constexpr std::size_t num_slots = 1024;  // a power of two, many more than a plan has kinds of work

std::size_t hash_of(const Work& work) {
  const auto mix = [](std::uint64_t hash, std::uint64_t value) {
    return (hash ^ value) * 0x9E3779B97F4A7C15 ^ (hash >> 29);
  };
  std::uint64_t hash = static_cast<std::uint64_t>(work.kind) << 48 |
                       static_cast<std::uint64_t>(work.type) << 40 |
                       static_cast<std::uint64_t>(work.out_type) << 32 | work.flags;
  hash = mix(hash, static_cast<std::uint64_t>(work.size));
  hash = mix(hash, static_cast<std::uint64_t>(work.width));
  hash = mix(hash, static_cast<std::uint64_t>(work.depth));
  return static_cast<std::size_t>(hash >> 32);
}

const TimeCurve* find_curve(const std::vector<TimeCurve>& curves, const Work& work) {
  const auto found = std::find_if(curves.begin(), curves.end(), [&](const TimeCurve& curve) {
    return is_same_curve(curve.work, work);
  });
  return found == curves.end() ? nullptr : &*found;
}

/// From the measured work of the same kind that is nearest to it, in proportion; nothing where the
/// kind was not measured. Another type counts as further away than any size; a part of the group is
/// another group.
std::optional<double> scaled(const std::vector<TimeCurve>& curves, const Work& work) {
  const double wanted = std::max(1.0, amount(work));
  double min_distance = std::numeric_limits<double>::infinity();
  std::optional<double> best;
  for (const TimeCurve& curve : curves) {
    if (curve.work.kind != work.kind) continue;
    const bool is_same_part = curve.work.width == work.width && curve.work.depth == work.depth;
    if (is_collective(work.kind) && !is_same_part) continue;
    const double other_type = curve.work.type == work.type ? 0 : 1e3;
    const double other_way = curve.work.flags == work.flags ? 0 : 1;
    for (const TimePoint& point : curve.points) {
      Work measured = curve.work;
      measured.size = point.size;
      const double ratio = wanted / std::max(1.0, amount(measured));
      const double distance = std::abs(std::log(ratio)) + other_type + other_way;
      if (distance >= min_distance) continue;
      min_distance = distance;
      best = point.seconds * ratio;
    }
  }
  return best;
}

/// Of memory that is read and written by work that does little else; 0 where none was measured.
double seconds_per_byte(const DeviceProfile& profile) {
  double bytes = 0, seconds = 0;
  for (const WorkKind kind : {WorkKind::add, WorkKind::convert, WorkKind::update}) {
    for (const TimeCurve& curve : profile.kernels) {
      if (curve.work.kind != kind) continue;
      Work largest = curve.work;
      largest.size = curve.points.back().size;
      bytes += amount(largest);
      seconds += curve.points.back().seconds;
    }
    if (bytes > 0) return seconds / bytes;
  }
  return 0;
}

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

OperationTimes::OperationTimes(const DeviceProfile& profile, GroupShape shape)
    : profile_(&profile),
      shape_(shape),
      seconds_per_byte_(seconds_per_byte(profile)),
      known_(num_slots) {
  const auto far = [&](const GroupProfile& group) {
    return std::pair(std::abs(std::log(static_cast<double>(group.shape.size()) / shape.size())),
                     group.shape.num_nodes == shape.num_nodes ? 0 : 1);
  };
  for (const GroupProfile& group : profile.groups) {
    // A group of one knows nothing of collectives.
    if (group.shape != shape && (group.shape.size() == 1) != (shape.size() == 1)) continue;
    if (group_ == nullptr || far(group) < far(*group_)) group_ = &group;
  }
  if (group_ != nullptr) {
    slowdown_ = group_->slowdown;
  } else if (!profile.groups.empty()) {
    slowdown_ = profile.groups.front().slowdown;
  }
}

double OperationTimes::seconds(const Work& work) {
  Slot& slot = known_[hash_of(work) % num_slots];
  if (slot.seconds < 0 || slot.work != work) slot = {work, look_up(work)};
  return slot.seconds;
}

double OperationTimes::look_up(const Work& work) const {
  if (is_collective(work.kind)) return estimate_collective(work);
  if (const TimeCurve* curve = find_curve(profile_->kernels, work))
    return curve->seconds(work.size);
  if (const auto seconds = scaled(profile_->kernels, work)) return *seconds;
  // Earlier releases measured a product and what is beside it apart.
  if (const auto parts = parts_of(work)) return look_up(parts->first) + look_up(parts->second);
  return amount(work) * seconds_per_byte_;
}

double OperationTimes::estimate_collective(const Work& work) const {
  const auto share_that_travels = [](int ranks) { return (ranks - 1.0) / ranks; };
  const bool is_of_part = work.width > 0;
  const double share =
      share_that_travels(is_of_part ? static_cast<int>(work.width) : shape_.size());
  const auto measured = [&](const GroupProfile* group, const Work& wanted,
                            int ranks) -> std::optional<double> {
    if (group == nullptr) return std::nullopt;
    const double ratio = ranks > 1 ? share / share_that_travels(ranks) : 1;
    if (const TimeCurve* curve = find_curve(group->collectives, wanted))
      return ratio * curve->seconds(work.size);
    if (const auto seconds = scaled(group->collectives, wanted)) return ratio * *seconds;
    return std::nullopt;
  };
  Work whole = work;
  if (is_of_part) {
    if (const auto seconds = measured(group_, work, 1)) return *seconds;
    whole.width = whole.depth = 0;
    const GroupProfile* const alike = group_like_part(work);
    if (const auto seconds = measured(alike, whole, static_cast<int>(work.width))) return *seconds;
  }
  const int ranks = group_ == nullptr ? 1 : group_->shape.size();
  if (const auto seconds = measured(group_, whole, ranks)) return *seconds;
  // Every byte that travels is written once and read once; where all is reduced, twice.
  const double passes = work.kind == WorkKind::all_reduce ? 4 : 2;
  return passes * share * amount(work) * seconds_per_byte_;
}

const GroupProfile* OperationTimes::group_like_part(const Work& work) const {
  const auto ranks = static_cast<int>(work.width);
  const bool is_inside = work.depth == 1 && shape_.num_gpus % ranks == 0;
  const GroupShape shape = is_inside ? GroupShape{ranks, 1} : GroupShape{1, ranks};
  if (!is_inside && work.depth < shape_.num_gpus) return nullptr;
  const auto found = std::find_if(profile_->groups.begin(), profile_->groups.end(),
                                  [&](const GroupProfile& group) { return group.shape == shape; });
  return found == profile_->groups.end() ? nullptr : &*found;
}

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
