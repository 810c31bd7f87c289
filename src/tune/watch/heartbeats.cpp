#include "watch/heartbeats.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"

namespace dstune {
namespace {

constexpr std::chrono::seconds round_length{2};
/// Nothing else of ours is sent from rank to rank over the world itself.
constexpr int heartbeat_tag = 7;
/// A message that is never received is read for ever.
constexpr char pulse = 1;

std::vector<int> ranks_elsewhere(const Communicator& world, const std::set<int>& ranks_here) {
  std::vector<int> others;
  for (int rank = 0; rank < world.size(); ++rank)
    if (!ranks_here.contains(rank) && (world.rank() == 0 || rank == 0)) others.push_back(rank);
  return others;
}

}  // namespace

Silence::Silence(const std::vector<int>& world_ranks) {
  for (const int rank : world_ranks) rounds_[rank] = 0;
}

void Silence::hear(int world_rank) {
  const auto found = rounds_.find(world_rank);
  if (found != rounds_.end()) found->second = 0;
}

std::vector<int> Silence::end_round() {
  std::vector<int> lost;
  for (auto& [rank, rounds] : rounds_)
    if (++rounds > max_rounds) lost.push_back(rank);
  for (const int rank : lost) rounds_.erase(rank);
  return lost;
}

Heartbeats::Heartbeats(const std::set<int>& ranks_here, std::function<void(int)> lose)
    : others_(ranks_elsewhere(world_, ranks_here)), silence_(others_), lose_(std::move(lose)) {
  if (others_.empty()) return;
  thread_.emplace(round_length, [this, is_over = false]() mutable {
    if (is_over) return;
    try {
      beat();
    } catch (const MpiError& error) {
      // Whoever computes meets it, too; what is said here is that nobody watches any more.
      is_over = true;
      log::warning(fmt::format(log_text::nodes_not_watched, error.what()));
    }
  });
}

void Heartbeats::beat() {
  for (const int rank : others_) {
    // To the dead nothing arrives, and one message is enough to wait for that.
    Request& last = sent_[rank];
    if (last.test()) last = world_.start_send(&pulse, sizeof pulse, rank, heartbeat_tag);
  }
  while (const auto message = world_.try_receive(heartbeat_tag)) silence_.hear(message->source);
  for (const int rank : silence_.end_round()) {
    std::erase(others_, rank);
    lose_(rank);
  }
}

}  // namespace dstune
