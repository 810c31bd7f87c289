#pragma once
/// Watches the job from the first line of main() to its last, in every rank, on a thread that knows
/// no MPI. It takes the signals to stop, sees which other ranks are lost, and ends this process
/// where nothing else can: MPI's collectives wait for the dead for ever.
///
/// Ranks of one node see each other on a node board in shared memory. A process that has ended is
/// found within 2 s, one that is stopped after 30 s. A thread that knows of other nodes tells
/// lose(). Local.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace dstune {

class NodeBoard;
struct LostRank;

class Watchdog {
 public:
  /// Blocks the stop signals in the calling thread, and so in all that it starts: first of all.
  /// Until begin_search() a signal to stop ends the process with 75, and so does the loss of any
  /// rank but in a check.
  Watchdog();
  /// The rank leaves in the ordinary way.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// MPI has started, so all ranks are there.
  void note_world_rank(int world_rank);
  /// … on so many hosts.
  void note_hosts(int num_hosts);
  /// World ranks that are watched on this node, the caller's among them.
  [[nodiscard]] std::set<int> ranks_here() const;

  /// Sets the place of exit_status.json, which is made there if this rank 0 is lost. Rank 0 only.
  void set_exit_status_path(const std::string& path);
  /// Rank 0 calls it where it has to leave before there is such a path. On another thread.
  void set_early_end(std::function<void(int exit_code, const std::string& reason)> early_end);
  /// This is a check from here on: the loss of any rank ends it with 6, from rank 0 where that is
  /// there, and there is nothing to resume.
  void begin_check();
  /// From here on signals to stop are counted, and the loss of a rank other than 0 ends nothing.
  void begin_search();
  /// How many signals to stop were counted.
  [[nodiscard]] int num_stop_signals() const { return num_stop_signals_; }

  /// From another thread: that rank is not heard of any more.
  void lose(int world_rank);
  /// World ranks that are lost, and how: "died", "does not answer". None ever comes back.
  [[nodiscard]] std::map<int, std::string> lost_ranks() const;
  /// "rank 1 died", where the launcher stops the others for it; empty: none, or it lets them live.
  [[nodiscard]] std::string who_died() const;

  /// The job's code is decided, and what follows is collective: the process leaves with the code
  /// where another rank dies in it, or where it takes longer than 20 s.
  void begin_end(int exit_code);
  /// Sets the code with which others of the node leave if they miss this rank; right before it
  /// leaves.
  void note_end(int exit_code);
  /// Leaves at once: MPI is not ended. Processes of this node that are stopped are killed where the
  /// launcher would wait for them for ever. If it would wait although all ranks have left, rank 0
  /// ends it, or one of a host if rank 0 is lost. Ranks on mpirun's own host do so by SIGTERM,
  /// others by MPI_Abort.
  [[noreturn]] void leave(int exit_code);
  /// The process returns this once MPI has ended: 0 where the launcher would never end otherwise,
  /// and returns 0 itself. Open MPI 4.1's mpirun --enable-recovery is such a one on several hosts.
  [[nodiscard]] int code_behind_mpi(int exit_code) const;

 private:
  struct State;
  void run(const std::stop_token& stop);
  void look();
  void look_at_peers();
  [[nodiscard]] std::string loss_here() const;
  void decide();
  void kill_stopped();
  [[nodiscard]] bool waits_for_ever() const;
  static bool end_mpirun();
  [[noreturn]] void leave_now(int exit_code);
  [[noreturn]] void give_up(int exit_code, const std::string& reason);

  std::unique_ptr<State> state_;
  std::atomic<int> num_stop_signals_ = 0;
  std::jthread thread_;  ///< last: it uses the rest
};

}  // namespace dstune
