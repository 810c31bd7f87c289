#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "dstune/predict/step_predictor.hpp"

namespace dstune {
namespace {

/// A power of two, many more than a plan has kinds of work.
constexpr std::size_t num_slots = 1024;

std::size_t slot_of(const Work& work) {
  std::size_t hash = 0;
  const std::uint64_t kind = static_cast<std::uint64_t>(work.kind) << 48 |
                             static_cast<std::uint64_t>(work.type) << 40 |
                             static_cast<std::uint64_t>(work.out_type) << 32 | work.flags;
  mix_hash(hash, kind);
  for (const std::int64_t size : {work.size, work.width, work.depth, std::int64_t{0}})
    mix_hash(hash, size);
  // The upper bits depend on all that was mixed in before the last.
  return hash >> 32 & (num_slots - 1);
}

const TimeCurve* find_curve(const std::vector<TimeCurve>& curves, const Work& work) {
  for (const TimeCurve& curve : curves)
    if (is_same_curve(curve.work, work)) return &curve;
  return nullptr;
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

/// Seconds a byte of memory that is read and written by work that does little else; 0 if none was
/// measured.
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

}  // namespace

OperationTimes::OperationTimes(const DeviceProfile& profile, GroupShape shape,
                               const std::optional<TargetKernels>& kernels)
    : profile_(&profile),
      shape_(shape),
      seconds_per_byte_(seconds_per_byte(profile)),
      is_measured_(!kernels),
      known_(num_slots) {
  if (profile.cluster && roofline_lacks(*profile.cluster, shape).empty())
    roofline_.emplace(*profile.cluster, shape, kernels);
  if (!is_measured_) return;
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

std::optional<std::size_t> OperationTimes::links_of(const Work& work) const {
  if (!is_collective(work.kind) || !roofline_ || !profile_->groups.empty()) return std::nullopt;
  return roofline_->is_between_nodes(work) ? 1 : 0;
}

double OperationTimes::seconds(const Work& work, bool on_host) {
  Slot& slot = known_[slot_of(work)];
  if (slot.seconds < 0 || slot.work != work || slot.on_host != on_host)
    slot = {work, on_host, look_up(work, on_host)};
  return slot.seconds;
}

double OperationTimes::look_up(const Work& work, bool on_host) const {
  if (!is_measured_) return roofline_->seconds(work, on_host);
  if (is_collective(work.kind)) return estimate_collective(work);
  if (const TimeCurve* curve = find_curve(profile_->kernels, work))
    return curve->seconds(work.size);
  if (const auto seconds = scaled(profile_->kernels, work)) return *seconds;
  if (roofline_) return roofline_->seconds(work, on_host);
  // Earlier releases measured a product and what is beside it apart.
  if (const auto parts = parts_of(work))
    return look_up(parts->first, on_host) + look_up(parts->second, on_host);
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
    // A node's links say nothing of a network that is known.
    if (roofline_ && group->shape.num_nodes == 1 && shape_.num_nodes > 1 && group == group_)
      return std::nullopt;
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
  if (roofline_) return roofline_->seconds(work);
  // Every byte that travels is written once and read once; where all is reduced, twice.
  const double passes = work.kind == WorkKind::all_reduce ? 4 : 2;
  return passes * share * amount(work) * seconds_per_byte_;
}

const GroupProfile* OperationTimes::group_like_part(const Work& work) const {
  const auto ranks = static_cast<int>(work.width);
  const bool is_inside = work.depth == 1 && shape_.num_gpus % ranks == 0;
  const GroupShape shape = is_inside ? GroupShape{ranks, 1} : GroupShape{1, ranks};
  if (!is_inside && work.depth < shape_.num_gpus) return nullptr;
  const auto found = std::ranges::find(profile_->groups, shape, &GroupProfile::shape);
  return found == profile_->groups.end() ? nullptr : &*found;
}

}  // namespace dstune
