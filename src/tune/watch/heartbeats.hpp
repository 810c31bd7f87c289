#pragma once
/// Between nodes, where no rank sees another's process: rank 0 and each rank that is not on its
/// node send each other a message now and then. A thread of its own, so that a rank is heard while
/// it is stuck in MPI, and hears. Needs MPI_THREAD_MULTIPLE.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "watch/waiting.hpp"

namespace dstune {

/// Who is silent, from how often others were heard. It counts rounds and not the time: where all
/// are stopped for a while, nobody is missed. Local.
class Silence {
 public:
  /// Rounds that a rank may pass without a message.
  static constexpr int max_rounds = 12;

  explicit Silence(const std::vector<int>& world_ranks);
  void hear(int world_rank);
  /// Ends a round; the ranks that have been silent for too long, each once.
  std::vector<int> end_round();

 private:
  std::map<int, int> rounds_;  ///< since a rank was heard, of those that are not lost
};

class Heartbeats {
 public:
  /// `ranks_here`: the world ranks that the caller watches without this. `lose` is told of ranks
  /// that are not heard of any more, by another thread. Every rank makes one after MPI's start.
  /// Local.
  Heartbeats(const std::set<int>& ranks_here, std::function<void(int world_rank)> lose);

 private:
  void beat();

  Communicator world_ = Communicator::world();
  std::vector<int> others_;
  std::map<int, Request> sent_;  ///< the last one to each
  Silence silence_;
  std::function<void(int)> lose_;
  std::optional<PeriodicTask> thread_;  ///< last: it uses the rest
};

}  // namespace dstune
