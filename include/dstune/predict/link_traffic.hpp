#pragma once
/// The bytes that a step's collectives put on a node's link: those of the built-in step, and gloo's
/// in the user's training. docs/figures/fidelity.md has counts of links. All functions: Local.

#include "dstune/core/experiment.hpp"
#include "dstune/core/target_time.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/plan/step_plan.hpp"
#include "dstune/predict/device_profile.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {

/// Bytes on the link of a node, the way that carries more.
struct LinkTraffic {
  double here = 0;  ///< by the built-in step, which uses both ways at once
  double gloo = 0;  ///< by gloo; twice as many where it uses one way after the other
  /// The counts of Overhead::communicated_byte and small_call_byte by these collectives.
  double sent = 0, in_small_calls = 0;

  LinkTraffic& operator+=(const LinkTraffic& more);
  friend LinkTraffic operator*(double times, const LinkTraffic& traffic);
};

/// The traffic of a collective in a group of the shape: 0 for other work and inside a node. Parts
/// of a group that communicate at the same time share their nodes' links.
[[nodiscard]] LinkTraffic link_traffic(const Work& work, GroupShape shape);
/// The traffic of a segment, once.
[[nodiscard]] LinkTraffic link_traffic(const StepPlan& plan, const Segment& segment,
                                       GroupShape shape);

/// Counts of an optimizer step of which Overhead::link_byte costs what a byte took here. The scale
/// is that of kernels, and the link is the same there. gloo copies and sums bytes while the link
/// carries others: the longer of the two counts.
[[nodiscard]] Overheads with_link(Overheads counts, const LinkTraffic& traffic,
                                  const TimeCalibration& time, Precision precision);

/// The time of a byte on this machine's links between nodes, by the longest collectives that were
/// measured over them. 0: none were.
[[nodiscard]] double link_byte_s(const DeviceProfile& profile);

}  // namespace dstune
