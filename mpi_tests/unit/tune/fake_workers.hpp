#pragma once
/// Ranks that need no MPI: they answer the controller's messages as workers would, at once, and
/// fail as a test wants them to.

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/controller.hpp"

namespace dstune {

enum class Behaviour {
  ok,
  slow,
  raced_out,  ///< in its first run, once it hears of a better one
  fails_again,
  out_of_memory,
  throws,
  member_throws,
  silent_member,
  loses_device,   ///< that of its highest rank, each time
  silent_device,  ///< likewise, since it does not answer
  stuck_python,   ///< of its highest rank, too
  fits_alone,     ///< out of memory where it is to stay built
  dies_in_turns   ///< its highest rank, when finalists first take turns
};

/// Workers in memory: they answer as real ones would, at once.
class FakeWorkers : public Mailbox {
 public:
  explicit FakeWorkers(std::map<std::string, Behaviour> behaviours)
      : behaviours_(std::move(behaviours)) {}

  void send(int world_rank, Bytes data) override;
  std::optional<Mailbox::Message> try_receive() override;
  bool flush(double) override { return true; }

  /// What a GPU holds beside its arena of 700 bytes; 0: there is none.
  std::int64_t gpu_non_arena_bytes = 0;
  /// What a process holds beside the 300 bytes of its host's arena; 0: nobody looks.
  std::int64_t non_arena_bytes = 0;

  [[nodiscard]] bool was_slot_taken_twice() const { return was_slot_taken_twice_; }
  [[nodiscard]] const std::vector<std::string>& ran() const { return ran_; }
  [[nodiscard]] int times_ran(const std::string& experiment) const {
    return static_cast<int>(std::count(ran_.begin(), ran_.end(), experiment));
  }
  /// The runs of finalists that stay built: those that took turns in each.
  [[nodiscard]] const std::vector<std::vector<std::string>>& turns() const { return turns_; }
  [[nodiscard]] int times_built(const std::string& experiment) const {
    const auto found = times_built_.find(experiment);
    return found == times_built_.end() ? 0 : found->second;
  }
  /// Finalists that stay built at the end.
  [[nodiscard]] const std::set<std::string>& built() const { return built_; }
  /// Those of which an attempt was said to be risky.
  [[nodiscard]] const std::set<std::string>& risky() const { return risky_; }
  /// What each run of it was raced against in the end.
  [[nodiscard]] const std::vector<IncumbentEstimate>& incumbents(const std::string& experiment) {
    return incumbents_[experiment];
  }

 private:
  static message::Loss loss_of(Behaviour behaviour);
  void answer(int world_rank, const dstune::Message& message);
  void assigned(int world_rank, const message::Assign& assign);
  void went(int world_rank, std::uint64_t attempt);
  void ended(int world_rank, std::uint64_t attempt);
  void note_turns(const message::Assign& assign);
  Measurement measurement_of(const message::Assign& assign, const std::string& experiment,
                             std::int64_t micro_batch);

  std::map<std::string, Behaviour> behaviours_;
  std::queue<Mailbox::Message> answers_;
  std::map<std::uint64_t, message::Assign> assigns_;
  std::map<std::uint64_t, IncumbentEstimate> incumbent_of_attempt_;
  std::set<std::uint64_t> waiting_for_incumbent_;
  std::set<int> busy_;
  std::set<int> dead_;
  std::set<int> unusable_;
  std::set<std::string> risky_;
  std::vector<std::vector<std::string>> turns_;
  std::map<std::string, int> times_built_;
  std::set<std::string> built_;
  std::vector<std::string> ran_;
  std::map<std::string, std::vector<IncumbentEstimate>> incumbents_;
  bool was_slot_taken_twice_ = false;
};

}  // namespace dstune
