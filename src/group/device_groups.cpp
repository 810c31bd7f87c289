#include "dstune/group/device_groups.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "dstune/base/error.hpp"
#include "dstune/group/process_group.hpp"
#include "dstune/group/staged_group.hpp"
#include "nccl/communicator_set.hpp"
#include "nccl/nccl_group.hpp"

namespace dstune {
namespace {

/// Facts that the others must know of a rank.
struct Rank {
  std::int64_t staging_bytes = 0;
  int nccl_version = 0;  ///< 0: none
  bool shares_by_nccl = false;
  std::string device_id;
};

std::vector<Rank> gather(const Communicator& world, const DeviceGroupOptions& mine) {
  const int version = mine.nccl.library ? mine.nccl.library->version() : 0;
  const std::int64_t numbers[] = {static_cast<std::int64_t>(mine.staging.size()), version,
                                  nccl::serves_ranks_of_one_gpu(version) ? 1 : 0};
  const std::vector<Bytes> all = world.all_gather(std::as_bytes(std::span(numbers)));
  const std::vector<Bytes> ids = world.all_gather(std::as_bytes(std::span(mine.device_id)));
  std::vector<Rank> ranks(all.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::int64_t theirs[std::size(numbers)];
    std::memcpy(theirs, all[rank].data(), sizeof theirs);
    const std::string id(reinterpret_cast<const char*>(ids[rank].data()), ids[rank].size());
    ranks[rank] = {theirs[0], static_cast<int>(theirs[1]), theirs[2] != 0, id};
  }
  return ranks;
}

}  // namespace

struct DeviceGroups::State {
  State(const Communicator& world, DeviceGroupOptions options)
      : mine(std::move(options)), ranks(gather(world, mine)) {
    const auto smallest = std::ranges::min_element(ranks, {}, &Rank::staging_bytes);
    mine.staging = mine.staging.first(static_cast<std::size_t>(smallest->staging_bytes));
    if (mine.nccl.library) {
      communicators = std::make_unique<NcclCommunicatorSet>(
          NcclCommunicatorSet::Options{.library = mine.nccl.library,
                                       .free_bytes = mine.free_bytes,
                                       .max_communicators = mine.max_communicators,
                                       .connect_limit_s = mine.connect_limit_s,
                                       .begin_thread = mine.begin_thread});
    }
  }

  [[nodiscard]] const Rank& rank(int world_rank) const {
    return ranks.at(static_cast<std::size_t>(world_rank));
  }
  [[nodiscard]] bool copies(std::span<const int> world_ranks) const {
    return world_ranks.size() == 1 && !(mine.nccl_alone && mine.nccl.library);
  }
  /// Empty where NCCL serves these ranks.
  [[nodiscard]] std::string staging_reason(std::span<const int> world_ranks) const {
    std::map<std::string, int> rank_of_device;
    const int first = world_ranks.front();
    for (const int other : world_ranks) {
      const auto [found, is_new] = rank_of_device.try_emplace(rank(other).device_id, other);
      if (!is_new && !(rank(found->second).shares_by_nccl && rank(other).shares_by_nccl))
        return text_of(found->second, other) + " share a GPU";
    }
    for (const int other : world_ranks) {
      const int version = rank(other).nccl_version;
      if (version == 0) return "rank " + std::to_string(other) + " has no NCCL";
      if (version != rank(first).nccl_version) {
        return text_of(first, other) + " have NCCL " +
               nccl::version_text(rank(first).nccl_version) + " and " + nccl::version_text(version);
      }
    }
    return "";
  }
  /// Empty where no other rank computes on the GPU of one of them.
  [[nodiscard]] std::string sharing_ranks(std::span<const int> world_ranks) const {
    for (const int member : world_ranks) {
      const std::string& device = rank(member).device_id;
      for (int other = 0; other < static_cast<int>(ranks.size()); ++other) {
        if (other != member && !device.empty() && rank(other).device_id == device)
          return text_of(std::min(member, other), std::max(member, other)) + " share a GPU";
      }
    }
    return "";
  }
  static std::string text_of(int first, int second) {
    return "ranks " + std::to_string(first) + " and " + std::to_string(second);
  }

  DeviceGroupOptions mine;
  std::vector<Rank> ranks;
  std::unique_ptr<NcclCommunicatorSet> communicators;
  /// Sets of ranks whose collectives NCCL did not let anybody record, in this job.
  std::map<std::vector<int>, std::string> why_not_recorded;
};

DeviceGroups::DeviceGroups(const Communicator& world, DeviceGroupOptions mine)
    : state_(std::make_unique<State>(world, std::move(mine))) {
  require(state_->mine.queues != nullptr, "groups on devices need their queues");
}

DeviceGroups::~DeviceGroups() = default;

DeviceGroups::Transport DeviceGroups::transport_of(std::span<const int> world_ranks) const {
  if (state_->copies(world_ranks)) return {false, "copies on one device"};
  const std::string why = state_->staging_reason(world_ranks);
  if (!why.empty()) return {true, "staged through the host: " + why};
  return {false, "NCCL " + nccl::version_text(state_->rank(world_ranks.front()).nccl_version)};
}

std::string DeviceGroups::not_comparable_reason(std::span<const int> world_ranks) const {
  std::string sharing = state_->sharing_ranks(world_ranks);
  const Transport way = transport_of(world_ranks);
  return sharing.empty() && way.is_staged ? way.text : sharing;
}

std::unique_ptr<ProcessGroup> DeviceGroups::over(std::unique_ptr<ProcessGroup> host,
                                                 std::uint64_t attempt, const Waiter& waiter,
                                                 bool is_risky) {
  Queues& queues = *state_->mine.queues;
  if (state_->copies(host->world_ranks()))
    return std::make_unique<SelfGroup>(host->world_ranks().front(), queues);
  if (transport_of(host->world_ranks()).is_staged)
    return std::make_unique<StagedGroup>(std::move(host), queues, state_->mine.staging);
  const std::vector<int> ranks = host->world_ranks();
  auto communicator = state_->communicators->obtain(*host, attempt, waiter, is_risky);
  const auto known = state_->why_not_recorded.find(ranks);
  return std::make_unique<NcclGroup>(
      std::move(host), std::move(communicator), queues, waiter,
      NcclGroup::Recording{.why_not = known == state_->why_not_recorded.end() ? "" : known->second,
                           .renewed = [state = state_.get(), ranks, attempt, waiter, is_risky](
                                          ProcessGroup& same_host, const std::string& why) {
                             state->why_not_recorded.emplace(ranks, why);
                             state->communicators->abandon(ranks);
                             return state->communicators->obtain(same_host, attempt, waiter,
                                                                 is_risky);
                           }});
}

void DeviceGroups::abandon(std::span<const int> world_ranks) {
  if (state_->communicators) state_->communicators->abandon(world_ranks);
}

void DeviceGroups::give_up() {
  if (state_->communicators) state_->communicators->give_up();
}

void DeviceGroups::interrupt(std::uint64_t attempt, CollectiveError::Cause why) {
  if (state_->communicators) state_->communicators->interrupt(attempt, why);
}

std::int64_t DeviceGroups::communicator_bytes() const {
  return state_->communicators ? state_->communicators->device_bytes() : 0;
}

}  // namespace dstune
