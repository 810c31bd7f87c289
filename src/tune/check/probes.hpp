#pragma once
/// Measurements of a rank, and of collectives with others.

#include <functional>
#include <string>

#include "check/rank_report.hpp"
#include "dstune/base/wait.hpp"
#include "dstune/device/device.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune {

/// Measures products, and reads and writes of memory, into the report. All ranks of a host do it at
/// once, as they will train. `room_bytes`: bytes that the rank may use; a part of them is taken.
/// The report names what fails. Every rank calls `come_together` before each kind of work, equally
/// often. Two processors may be one core, so that the other one's work counts. Local but for that.
void probe_device(Device& device, std::int64_t room_bytes, const Waiter& waiter,
                  const std::function<void()>& come_together, RankReport& report);

/// All-reduce, all-gather and reduce-scatter of fp32, from 1 MiB up to what memory and `budget_s`
/// allow, 1 GiB at most. Collective over the group. Throws CollectiveError, DeviceError.
GroupRates probe_group(Device& device, ProcessGroup& group, int num_nodes, std::string transport,
                       double budget_s, std::int64_t room_bytes, const Waiter& waiter);

/// A product and an all-reduce are recorded as a graph and replayed: "" where the replay gives what
/// the calls gave, else what is wrong. Nothing where the device or the group records nothing.
/// Collective over the group. Throws as probe_group().
std::optional<std::string> probe_recording(Device& device, ProcessGroup& group,
                                           const Waiter& waiter);

}  // namespace dstune
