#include "calibrator.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "dstune/base/log.hpp"
#include "dstune/group/group_table.hpp"
#include "dstune/tune/idle.hpp"
#include "steady_time.hpp"

namespace dstune {

Calibrator::Calibrator(Mailbox& mailbox, std::vector<std::vector<int>> ranks_of_node,
                       Options options)
    : mailbox_(mailbox), ranks_of_node_(std::move(ranks_of_node)), options_(std::move(options)) {}

DeviceProfile Calibrator::run(std::span<const ProfilingTask> tasks) {
  for (const ProfilingTask& task : tasks) {
    if (ended_) break;
    start(task);
    await(std::max(options_.least_patience_s, options_.patience_of_budgets * task.budget_s));
  }
  return measured_.empty() ? DeviceProfile{} : merge_profiles(measured_);
}

void Calibrator::start(const ProfilingTask& task) {
  // Members give up by themselves long after ABORT should have reached them.
  const double timeout_s =
      options_.least_patience_s + 2 * options_.patience_of_budgets * task.budget_s;
  ProfilingTask without_disk = task;
  without_disk.disk = {};
  std::set<std::size_t> nodes_with_disk;
  for (const auto& group :
       aligned_groups(ranks_of_node_, task.shape.num_gpus, task.shape.num_nodes)) {
    // As experiments have it: a disk is one group's.
    bool is_first = true;
    for (std::size_t node = 0; node < ranks_of_node_.size(); ++node) {
      const auto& ranks = ranks_of_node_[node];
      const bool is_there = std::ranges::find_first_of(ranks, group) != ranks.end();
      if (is_there) is_first = nodes_with_disk.insert(node).second && is_first;
    }
    const std::uint64_t attempt = next_attempt_++;
    awaited_[attempt].insert(group.begin(), group.end());
    for (const int member : group) {
      mailbox_.send(member, encode(message::Calibrate{attempt, is_first ? task : without_disk,
                                                      group, timeout_s, options_.rest_s}));
    }
  }
}

void Calibrator::await(double patience_s) {
  const Clock::time_point give_up_at = Clock::now() + to_duration(patience_s);
  bool aborted = false;
  Clock::time_point leave_at = Clock::time_point::max();
  Idle idle;
  while (!awaited_.empty() && Clock::now() < leave_at) {
    receive();
    const bool is_to_be_ended = options_.is_to_be_ended && options_.is_to_be_ended();
    if (!aborted && (is_to_be_ended || Clock::now() >= give_up_at || is_lost())) {
      aborted = true;
      ended_ = true;
      leave_at = Clock::now() + to_duration(options_.rest_s + options_.abort_grace_s);
      log::warning("measuring the machine was cut short");
      for (const auto& [attempt, members] : awaited_) abort(attempt);
    }
    idle.pause();
  }
  // Whoever has not answered is found out by the first experiment that it is given.
  if (!awaited_.empty()) is_everybody_back_ = false;
  awaited_.clear();
}

void Calibrator::receive() {
  while (auto received = mailbox_.try_receive()) {
    Message message = decode(received->data);
    std::uint64_t attempt = 0;
    if (auto* calibrated = std::get_if<message::Calibrated>(&message)) {
      attempt = calibrated->attempt;
      if (awaited_.contains(attempt)) {
        measured_.push_back(std::move(calibrated->profile));
        outside_bytes_[received->source] = calibrated->outside_bytes;
        if (calibrated->gpu_outside_bytes > 0)
          gpu_outside_bytes_[received->source] = calibrated->gpu_outside_bytes;
      }
    }
    const auto* const gone = std::get_if<message::Gone>(&message);
    if (gone != nullptr) attempt = gone->attempt;
    const auto found = awaited_.find(attempt);
    if (found == awaited_.end()) continue;
    found->second.erase(received->source);
    if (gone != nullptr) {
      const bool is_first = left_.insert(attempt).second;
      if (is_first || gone->is_cause) log::warning("measuring the machine: " + gone->reason);
      // The others may be in a collective with it.
      if (is_first) abort(attempt);
    }
    if (found->second.empty()) awaited_.erase(found);
  }
}

void Calibrator::abort(std::uint64_t attempt) {
  for (const int member : awaited_.at(attempt))
    mailbox_.send(member, encode(message::Abort{attempt}));
}

bool Calibrator::is_lost() const {
  if (!options_.is_dead) return false;
  return std::any_of(awaited_.begin(), awaited_.end(), [&](const auto& attempt) {
    return std::any_of(attempt.second.begin(), attempt.second.end(), options_.is_dead);
  });
}

}  // namespace dstune
