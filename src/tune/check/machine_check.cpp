#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "check/check_text.hpp"
#include "check/findings.hpp"
#include "check/probes.hpp"
#include "check/rank_facts.hpp"
#include "check/rank_report.hpp"
#include "check/unfinished.hpp"
#include "dstune/base/archive.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/device/gpu_facts.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/tune/check.hpp"
#include "dstune/tune/watchdog.hpp"
#include "start/gpu_groups.hpp"
#include "start/rank_devices.hpp"
#include "watch/waiting.hpp"

namespace dstune {
namespace {

/// All of it. Who is late by then is named, and the job ends.
constexpr double whole_limit_s = 60;
/// A wait for others, and collectives of one group.
constexpr double wait_limit_s = 14, group_budget_s = 5;
/// Reports may come so long after rank 0's own: others may still wait for somebody.
constexpr double report_limit_s = wait_limit_s + 4;
constexpr int report_tag = 1;
constexpr const char* report_name = "report of a rank";
/// Numbers of a group's use, rising, and equal on all of its ranks.
constexpr std::uint64_t attempt_inside = 1, attempt_across = 2;

/// The groups whose collectives are measured: of each node, and of all ranks across nodes.
std::vector<std::vector<int>> groups_of(const Topology& topology) {
  std::vector<std::vector<int>> groups;
  for (const std::vector<int>& ranks : topology.ranks_of_node)
    if (ranks.size() > 1) groups.push_back(ranks);
  if (topology.num_nodes() > 1) {
    std::vector<int> all;
    for (int rank = 0; rank < topology.world_size; ++rank) all.push_back(rank);
    groups.push_back(all);
  }
  return groups;
}

/// Collectives of the groups that this rank is in, into its report.
class GroupProbes {
 public:
  GroupProbes(const Topology& topology, const FoundDevice& found, GroupTable& groups,
              std::int64_t room_bytes, RankReport& report)
      : topology_(topology),
        found_(found),
        groups_(groups),
        room_bytes_(room_bytes),
        report_(report) {}

  /// Nodes first, all at once, then the group across them. Collective over the world.
  void run(const std::vector<std::vector<int>>& all, const Communicator& world) {
    for (const bool across : {false, true}) {
      world.barrier();
      for (const std::vector<int>& ranks : all)
        if (crosses_nodes(ranks) == across &&
            std::ranges::find(ranks, topology_.world_rank) != ranks.end())
          probe(ranks);
    }
  }

 private:
  [[nodiscard]] bool crosses_nodes(const std::vector<int>& ranks) const {
    return topology_.num_nodes() > 1 && static_cast<int>(ranks.size()) == topology_.world_size;
  }

  void probe(const std::vector<int>& ranks) {
    const int num_nodes = crosses_nodes(ranks) ? topology_.num_nodes() : 1;
    const Waiter waiter(SteadyClock::now() + to_duration(wait_limit_s), nullptr,
                        topology_.share_core);
    try {
      const auto group =
          groups_.join(ranks, num_nodes > 1 ? attempt_across : attempt_inside, waiter);
      report_.groups.push_back(probe_group(*found_.device, *group, num_nodes,
                                           transport_of(ranks, num_nodes), group_budget_s,
                                           room_bytes_, waiter));
      if (const auto recording = probe_recording(*found_.device, *group, waiter))
        if (!report_.recording || report_.recording->empty()) report_.recording = recording;
    } catch (const Error& error) {
      report_.failures.push_back(fmt::format("collectives of {} ranks on {} host(s): {}",
                                             ranks.size(), num_nodes, error.what()));
      groups_.abandon(ranks);
      // A late peer may still write there.
      found_.device->input_arena().leak();
    }
  }

  [[nodiscard]] std::string transport_of(const std::vector<int>& ranks, int num_nodes) const {
    if (groups_.devices() != nullptr) return transports_of(*groups_.devices(), {ranks});
    return num_nodes > 1 ? "MPI" : "shared memory";
  }

  const Topology& topology_;
  const FoundDevice& found_;
  GroupTable& groups_;
  std::int64_t room_bytes_;
  RankReport& report_;
};

/// The reports that come within the time, by rank. Rank 0's part.
std::vector<RankReport> collect(const Communicator& world, RankReport own, Unfinished& known) {
  std::vector<RankReport> reports{std::move(own)};
  const SteadyClock::time_point until = SteadyClock::now() + to_duration(report_limit_s);
  while (static_cast<int>(reports.size()) < world.size() && SteadyClock::now() < until) {
    const auto message = world.try_receive(report_tag);
    if (message) {
      reports.push_back(json::unpack<RankReport>(message->data, report_name));
      known.keep(reports.back());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::ranges::sort(reports, {}, &RankReport::rank);
  return reports;
}

/// Every rank's, by rank. Collective over the world.
std::vector<RankReport> gather(const Communicator& world, const RankReport& mine) {
  std::vector<RankReport> reports;
  for (const Bytes& bytes : world.all_gather(json::pack(mine)))
    reports.push_back(json::unpack<RankReport>(bytes, report_name));
  return reports;
}

/// "rank 3 (node7)"
std::vector<std::string> missing_ranks(const std::vector<RankReport>& reports,
                                       const Topology& topology) {
  std::set<int> here;
  for (const RankReport& report : reports) here.insert(report.rank);
  std::vector<std::string> missing;
  for (int rank = 0; rank < topology.world_size; ++rank) {
    if (here.contains(rank)) continue;
    const auto node =
        static_cast<std::size_t>(topology.node_of_rank[static_cast<std::size_t>(rank)]);
    missing.push_back(fmt::format("rank {} ({})", rank, topology.hosts[node]));
  }
  return missing;
}

void send(const Communicator& world, const RankReport& report) {
  const Bytes bytes = json::pack(report);
  Request request = world.start_send(bytes.data(), bytes.size(), 0, report_tag);
  while (!request.test()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Prints, and says how it ends.
ExitCode conclude(const std::vector<RankReport>& reports, const Findings& findings, bool json) {
  const ExitCode code = findings.failures.empty() ? ExitCode::ok : ExitCode::no_device;
  if (json)
    output() << check_json(reports, findings, code).dump(2) << '\n';
  else
    output() << check_text(reports, findings);
  flush_output();
  if (!has_lost_output()) return code;
  log::error("stdout can not be written: its disk may be full");
  return ExitCode::not_writable;
}

/// The end that rank 0 tells all ranks.
struct End {
  ExitCode code = ExitCode::ok;
  bool has_left_work = false;  ///< a part failed, so that ranks may still wait for others
};

/// Prints what all ranks found, and says how the check ends. Rank 0 only.
End end_of(const std::vector<RankReport>& reports, const Topology& topology,
           const std::vector<PlacementFinding>& placement, bool json) {
  const std::vector<std::string> missing = missing_ranks(reports, topology);
  Findings findings = findings_of(reports, missing);
  for (const PlacementFinding& finding : placement)
    // A note of the GPUs names the ranks that share one.
    if (finding.kind != PlacementKind::shared_gpus) findings.notes.push_back(finding.text);
  const ExitCode code = conclude(reports, findings, json);
  if (!missing.empty()) MpiEnvironment::abort(static_cast<int>(code));
  return {code, std::ranges::any_of(reports,
                                    [](const RankReport& each) { return !each.failures.empty(); })};
}

/// Returns rank 0's end on every rank. Collective.
End share(const Communicator& world, const End& end) {
  Bytes bytes{static_cast<std::byte>(end.code), static_cast<std::byte>(end.has_left_work)};
  world.broadcast(bytes, 0);
  return {static_cast<ExitCode>(bytes[0]), bytes[1] != std::byte{0}};
}

}  // namespace

void print_unfinished_check(const JobOptions& options, ExitCode code, const std::string& reason) {
  Unfinished(options.json_output).print(code, reason);
}

ExitCode check_machine(const JobOptions& options, bool thread_multiple, Watchdog& watchdog) {
  const Communicator world = Communicator::world();
  const bool is_first = world.rank() == 0;
  if (!is_first) log::set_level(log::Level::off);
  const auto known = std::make_shared<Unfinished>(options.json_output);
  std::optional<Deadline> deadline;
  if (is_first) {
    deadline.emplace(whole_limit_s, known);
    watchdog.set_early_end([known](int exit_code, const std::string& reason) {
      known->print(static_cast<ExitCode>(exit_code), reason);
    });
  }
  const FoundNode here = find_node(world);
  const Topology& topology = here.topology;

  known->set_phase("at the start of the devices");
  const std::shared_ptr<GpuDriver> driver =
      options.backend == Backend::cpu ? nullptr : find_gpu_driver();
  RankReport report = facts_of(topology, options, thread_multiple, driver);
  // No rank has a context on a GPU before this.
  const std::vector<RankReport> facts = gather(world, report);
  if (is_first) std::ranges::for_each(facts, [&](const RankReport& each) { known->keep(each); });
  FoundDevice found;
  try {
    found = find_device(world, topology, options, {});
  } catch (const DeviceError& error) {
    log::error(error.what());
    known->finish();
    Findings findings = findings_of(facts, {});
    findings.failures.emplace_back(error.what());
    if (is_first) conclude(facts, findings, options.json_output);
    return ExitCode::no_device;
  }
  add_device(topology, found, report);
  RankDevice mine = describe(topology, found);
  mine.place = place_of(here, found, options, {});
  const std::vector<RankDevice> devices = gather_devices(world, mine);
  std::vector<PlacementFinding> placement;
  if (is_first) placement = find_placement(devices);

  known->set_phase("in products and reads of memory");
  world.barrier();
  // The rank may use its part of the host, or of its GPU.
  const std::int64_t room_bytes = mine.memory_bytes;
  const Waiter waiter(SteadyClock::now() + to_duration(wait_limit_s), nullptr, topology.share_core);
  probe_device(
      *found.device, room_bytes, waiter, [&] { world.barrier(); }, report);
  if (report.gpu) add_speeds(driver, *report.gpu);
  known->keep(report);

  known->set_phase("in collectives");
  const Communicator reports_of_ranks = world.duplicate();
  const std::vector<std::vector<int>> all_groups = groups_of(topology);
  std::optional<GroupTable> groups;
  groups.emplace(world, here.node, topology, all_groups,
                 GroupTable::Options{.device = device_groups(found, nccl::SharedWith::nobody)});
  GroupProbes(topology, found, *groups, room_bytes, report).run(all_groups, world);

  known->set_phase("in the ranks' reports");
  End end;
  if (is_first) {
    const std::vector<RankReport> reports = collect(reports_of_ranks, std::move(report), *known);
    deadline.reset();
    known->finish();
    end = end_of(reports, topology, placement, options.json_output);
  } else {
    send(reports_of_ranks, report);
  }
  end = share(world, end);
  if (end.has_left_work) MpiEnvironment::leave_without_finalize(static_cast<int>(end.code));
  groups.reset();
  return end.code;
}

}  // namespace dstune
