#include "dstune/predict/link_traffic.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "dstune/base/operands.hpp"
#include "dstune/plan/sent_bytes.hpp"

namespace dstune {
namespace {

// gloo asks the receiver before it sends. Its all-gather and its all-to-all first send and then
// say what they are ready to receive. Two ranks have one connection: the later one's answer waits
// behind its own data, so that the other one's data come after these. An all-gather is of two
// chunks, and the second one's wait is hidden. More ranks gather along a ring, one way on each
// connection; each two of them exchange as a pair does, at different times.
constexpr double turns_of_paired_gather = 1.5;
constexpr double turns_of_paired_exchange = 2;
constexpr double turns_of_exchange = 1.25;

/// A part of a group that communicates, and how it lies on nodes.
struct LinkedPart {
  double ranks = 1;
  double on_node = 1;  ///< of these, on each of its nodes
  double nodes = 1;
  double beside = 1;  ///< such parts that have ranks on the same nodes
};

LinkedPart linked_part(const Work& work, GroupShape shape) {
  const RankRange ranks =
      work.width == 0 ? RankRange{0, 1, shape.size()}
                      : RankRange{0, static_cast<int>(work.depth), static_cast<int>(work.width)};
  std::set<int> nodes;
  for (int index = 0; index < ranks.count; ++index)
    nodes.insert(ranks.rank(index) / shape.num_gpus);
  LinkedPart part{.ranks = static_cast<double>(ranks.count),
                  .nodes = static_cast<double>(nodes.size())};
  part.on_node = part.ranks / part.nodes;
  part.beside = std::max(1.0, shape.num_gpus / part.on_node);
  return part;
}

}  // namespace

LinkTraffic& LinkTraffic::operator+=(const LinkTraffic& more) {
  here += more.here;
  gloo += more.gloo;
  sent += more.sent;
  in_small_calls += more.in_small_calls;
  return *this;
}

LinkTraffic operator*(double times, const LinkTraffic& traffic) {
  return {times * traffic.here, times * traffic.gloo, times * traffic.sent,
          times * traffic.in_small_calls};
}

LinkTraffic link_traffic(const Work& work, GroupShape shape) {
  if (shape.num_nodes == 1) return {};
  const LinkedPart part = linked_part(work, shape);
  if (part.nodes == 1) return {};
  const auto bytes = static_cast<double>(work.size);
  // A ring crosses from each node to the next once.
  const double ring = (part.ranks - 1) / part.ranks * bytes;
  const double of_other_nodes = (part.nodes - 1) / part.nodes * bytes;
  // Each rank sends its parts of a sum, which has an order, by itself.
  const double from_each_rank = part.on_node * of_other_nodes;
  const bool is_pair = part.ranks == 2;
  LinkTraffic traffic;
  traffic.sent = sent_bytes(work.kind, part.ranks, bytes);
  traffic.in_small_calls = std::min(traffic.sent, most_of_small_call);
  const auto set = [&traffic](double here, double gloo) {
    traffic.here = here;
    traffic.gloo = gloo;
  };
  switch (work.kind) {
    case WorkKind::all_reduce:
      set(from_each_rank + of_other_nodes, 2 * ring);
      break;
    case WorkKind::reduce:
      // The root's node receives what was summed elsewhere, too.
      set(from_each_rank + of_other_nodes, ring + of_other_nodes);
      break;
    case WorkKind::reduce_scatter:
      set(from_each_rank, 2 * ring);
      break;
    case WorkKind::all_gather:
      set(of_other_nodes, (is_pair ? turns_of_paired_gather : 1) * ring);
      break;
    case WorkKind::all_to_all:
      set(from_each_rank,
          (is_pair ? turns_of_paired_exchange : turns_of_exchange) * from_each_rank);
      break;
    default:
      return {};
  }
  traffic.here *= part.beside;
  traffic.gloo *= part.beside;
  return traffic;
}

LinkTraffic link_traffic(const StepPlan& plan, const Segment& segment, GroupShape shape) {
  LinkTraffic sum;
  if (shape.num_nodes == 1) return sum;
  const auto of_steps = [&](std::size_t begin, std::size_t end) {
    LinkTraffic of_these;
    for (std::size_t index = begin; index < end; ++index)
      if (const std::optional<Work> work = work_of(plan, segment.steps[index].operation))
        of_these += link_traffic(*work, shape);
    return of_these;
  };
  sum = of_steps(0, segment.steps.size());
  for (const RepeatedSteps& repeated : segment.repeated)
    sum += static_cast<double>(repeated.times - 1) * of_steps(repeated.begin, repeated.end);
  return sum;
}

Overheads with_link(Overheads counts, const LinkTraffic& traffic, const TimeCalibration& time,
                    Precision precision) {
  Overheads costs_s = time.costs_s;
  of(counts, Overhead::link_byte) =
      traffic.gloo - time.device_scale(precision, counts) * traffic.here;
  const double link_s = of(costs_s, Overhead::link_byte) * traffic.gloo;
  const double bytes_s = of(costs_s, Overhead::communicated_byte) * traffic.sent +
                         of(costs_s, Overhead::small_call_byte) * traffic.in_small_calls;
  const double hidden = bytes_s > link_s ? link_s / bytes_s : 1;
  of(counts, Overhead::communicated_byte) -= hidden * traffic.sent;
  of(counts, Overhead::small_call_byte) -= hidden * traffic.in_small_calls;
  return counts;
}

double link_byte_s(const DeviceProfile& profile) {
  struct Point {
    double bytes, seconds;
  };
  std::vector<Point> longest;
  double most_bytes = 0;
  for (const GroupProfile& group : profile.groups) {
    for (const TimeCurve& curve : group.collectives) {
      if (curve.points.empty()) continue;
      Work work = curve.work;
      work.size = curve.points.back().size;
      const double bytes = link_traffic(work, group.shape).here;
      if (bytes <= 0) continue;
      longest.push_back({bytes, curve.points.back().seconds});
      most_bytes = std::max(most_bytes, bytes);
    }
  }
  // Buffers take in what is short, and a wait for the peers only makes a call longer.
  constexpr double long_share = 0.25;
  double least_s = std::numeric_limits<double>::infinity();
  for (const auto& [bytes, seconds] : longest)
    if (bytes >= long_share * most_bytes) least_s = std::min(least_s, seconds / bytes);
  return longest.empty() ? 0 : least_s;
}

}  // namespace dstune
