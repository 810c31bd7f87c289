#include "dstune/tune/watchdog.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "dstune/base/crash.hpp"
#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/base/signals.hpp"
#include "dstune/comm/environment.hpp"
#include "dstune/report/folder_lock.hpp"
#include "dstune/report/results.hpp"
#include "watch/launch.hpp"
#include "watch/liveness.hpp"
#include "watch/node_board.hpp"

namespace dstune {
namespace {

using WatchClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_interval{500};
/// Looks for the ranks of this node to reach main(): a file system may serve some of them late.
constexpr int looks_until_missed = 100;
/// MPI_Win_free and MPI_Finalize talk to everybody; somebody may not answer.
constexpr std::chrono::seconds end_limit{20};
/// For what a rank writes and says before it leaves; a disk may hang.
constexpr std::chrono::seconds last_words_limit{5};
/// The others leave in this time, before the job is ended from outside.
constexpr std::chrono::seconds before_abort{1};
constexpr int stopped_early_code = static_cast<int>(ExitCode::stopped_early);

/// This rank's line, for a handler that can ask nobody.
std::atomic<NodeBoard::Line*> own_line = nullptr;

const char* environment_variable(const char* name) {
  return std::getenv(name);
}

}  // namespace

struct Watchdog::State {
  const Launch launch = find_launch(environment_variable);
  const std::unique_ptr<NodeBoard> node_board = NodeBoard::attach(launch);
  std::atomic<int> world_rank = launch.world_rank;
  std::atomic<int> num_hosts = 1;
  std::atomic<bool> have_all_come = launch.ranks_here == 0;

  int num_looks = 0;  ///< the watchdog's thread alone

  mutable std::mutex mutex;     ///< of what follows
  std::vector<Liveness> peers;  ///< by line
  JobPhase phase = JobPhase::starting;
  int exit_code = stopped_early_code;  ///< while it ends
  WatchClock::time_point end_by{};
  std::string exit_status_path;  ///< where there is no node board
  std::function<void(int, const std::string&)> early_end;
  std::map<int, LostRank> lost;
};

Watchdog::Watchdog() {
  block_stop_signals();
  state_ = std::make_unique<State>();
  if (state_->node_board) own_line = &state_->node_board->own();
  crash::set_last_note([](int exit_code) {
    if (NodeBoard::Line* const line = own_line)
      line->end.store(1 + exit_code, std::memory_order_release);
  });
  NodeBoard::remove_stale();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Watchdog::~Watchdog() {
  if (state_->node_board && !state_->node_board->own().exit_code()) note_end(0);
  thread_.request_stop();
  own_line = nullptr;
  // It waits for a signal.
  pthread_kill(thread_.native_handle(), SIGTERM);
}

void Watchdog::note_hosts(int num_hosts) {
  state_->num_hosts = num_hosts;
}

void Watchdog::note_world_rank(int world_rank) {
  state_->world_rank = world_rank;
  crash::answer_for_job(world_rank == 0);
  state_->have_all_come = true;
  if (state_->node_board) state_->node_board->close();
}

std::set<int> Watchdog::ranks_here() const {
  std::set<int> ranks{state_->world_rank};
  if (!state_->node_board) return ranks;
  for (const NodeBoard::Line& line : state_->node_board->lines())
    if (line.is_filled.load(std::memory_order_acquire) != 0) ranks.insert(line.world_rank);
  return ranks;
}

void Watchdog::set_exit_status_path(const std::string& path) {
  if (state_->node_board) state_->node_board->set_exit_status_path(path);
  crash::set_exit_status_path(path);
  const std::lock_guard lock(state_->mutex);
  state_->exit_status_path = path;
}

void Watchdog::set_early_end(
    std::function<void(int exit_code, const std::string& reason)> early_end) {
  const std::lock_guard lock(state_->mutex);
  state_->early_end = std::move(early_end);
}

void Watchdog::begin_check() {
  const std::lock_guard lock(state_->mutex);
  state_->phase = JobPhase::checking;
}

void Watchdog::begin_search() {
  const std::lock_guard lock(state_->mutex);
  state_->phase = JobPhase::searching;
}

void Watchdog::lose(int world_rank) {
  const std::lock_guard lock(state_->mutex);
  state_->lost.try_emplace(world_rank, LostRank{.how = "does not answer"});
}

std::string Watchdog::who_died() const {
  if (state_->launch.outlives_ranks) return "";
  const std::lock_guard lock(state_->mutex);
  for (const auto& [world_rank, lost] : state_->lost)
    if (lost.is_gone && !lost.exit_code) return fmt::format("rank {} died", world_rank);
  return "";
}

std::map<int, std::string> Watchdog::lost_ranks() const {
  const std::lock_guard lock(state_->mutex);
  std::map<int, std::string> ranks;
  for (const auto& [world_rank, lost] : state_->lost) ranks.emplace(world_rank, lost.how);
  return ranks;
}

void Watchdog::begin_end(int exit_code) {
  const std::lock_guard lock(state_->mutex);
  if (state_->phase == JobPhase::ending) return;
  state_->phase = JobPhase::ending;
  state_->exit_code = exit_code;
  state_->end_by = WatchClock::now() + end_limit;
}

void Watchdog::note_end(int exit_code) {
  if (state_->node_board)
    state_->node_board->own().end.store(1 + exit_code, std::memory_order_release);
}

void Watchdog::leave(int exit_code) {
  kill_stopped();
  note_end(exit_code);
  leave_now(exit_code);
}

/// Open MPI 4.1 with recovery on several hosts: mpirun never ends where a rank was lost, or where
/// ranks return another code than 0, also behind MPI_Finalize (tried with 4.1.4, plain programs).
bool Watchdog::waits_for_ever() const {
  return state_->launch.outlives_ranks && state_->num_hosts > 1;
}

/// Signals mpirun of this host, which then ends all. It may miss an MPI_Abort: it stayed in 6 of 6
/// tries after one of another host's ranks, and in 2 of 14 after one of its own host's.
bool Watchdog::end_mpirun() {
  const pid_t parent = ::getppid();
  if (parent <= 1) return false;
  std::ifstream file(fmt::format("/proc/{}/comm", parent));
  std::string name;
  std::getline(file, name);
  const auto begins_with = [&](std::string_view word) { return name.starts_with(word); };
  constexpr std::array<std::string_view, 3> names = {"mpirun", "orterun", "mpiexec"};
  return std::ranges::any_of(names, begins_with) && ::kill(parent, SIGTERM) == 0;
}

int Watchdog::code_behind_mpi(int exit_code) const {
  return waits_for_ever() ? 0 : exit_code;
}

void Watchdog::leave_now(int exit_code) {
  if (waits_for_ever()) {
    bool ends_the_job = state_->world_rank == 0;
    // One of a host: a second signal within seconds would cut mpirun's own end short.
    std::set<int> here = ranks_here();
    {
      const std::lock_guard lock(state_->mutex);
      for (const auto& [rank, lost] : state_->lost) here.erase(rank);
      ends_the_job |=
          state_->lost.contains(0) && (here.empty() || *here.begin() == state_->world_rank);
    }
    if (ends_the_job) {
      std::this_thread::sleep_for(before_abort);
      flush_output();
      if (end_mpirun()) MpiEnvironment::leave_without_finalize(exit_code);
      // On a thread of its own, since MPI may be stuck.
      try {
        std::thread([exit_code] { MpiEnvironment::abort(exit_code); }).detach();
        std::this_thread::sleep_for(last_words_limit);
      } catch (const std::system_error&) {
        // The launcher stays then; whoever started it has to end it.
      }
    }
  }
  MpiEnvironment::leave_without_finalize(exit_code);
}

void Watchdog::run(const std::stop_token& stop) {
  crash::name_thread("the watchdog");
  WatchClock::time_point next_look = WatchClock::now();
  while (!stop.stop_requested()) {
    const int signal = take_stop_signal(look_interval);
    if (stop.stop_requested()) return;
    if (signal != 0) {
      JobPhase phase{};
      {
        const std::lock_guard lock(state_->mutex);
        phase = state_->phase;
      }
      if (phase == JobPhase::starting)
        give_up(stopped_early_code, "stopped by a signal before the search began");
      if (phase == JobPhase::checking) {
        // A launcher stops the others where a rank has died, and leaves them a second.
        const std::string loss = loss_here();
        if (!loss.empty()) give_up(static_cast<int>(ExitCode::no_device), loss);
        give_up(stopped_early_code,
                "the check was stopped by a signal; mpirun sends one, too, where another host's "
                "rank is lost");
      }
      // A launcher stops the others where a rank has died: the cause is known first.
      if (state_->node_board) look_at_peers();
      ++num_stop_signals_;
    }
    // Signals wake it, too, and looks are counted.
    if (WatchClock::now() < next_look) continue;
    next_look = WatchClock::now() + look_interval;
    look();
  }
}

void Watchdog::look() {
  ++state_->num_looks;
  if (state_->node_board) look_at_peers();
  decide();
}

void Watchdog::look_at_peers() {
  const std::span<NodeBoard::Line> lines = state_->node_board->lines();
  const std::lock_guard lock(state_->mutex);
  state_->peers.resize(lines.size());
  NodeBoard::Line& own = state_->node_board->own();
  own.beats.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const NodeBoard::Line& line = lines[i];
    if (&line == &own || line.is_filled.load(std::memory_order_acquire) == 0) continue;
    const Liveness::Finding found = state_->peers[i].look(
        line.beats.load(std::memory_order_relaxed),
        [&] { return state_->node_board->sees_process(line) && is_gone(line.process()); });
    if (found == Liveness::Finding::lives) continue;
    LostRank& lost = state_->lost[line.world_rank];
    ++lost.num_looks;
    lost.is_gone = found == Liveness::Finding::gone;
    // A process that is still there may take long until it leaves.
    if (lost.is_gone) lost.exit_code = line.exit_code();
    lost.how = !lost.is_gone ? "does not answer" : lost.exit_code ? "has left" : "died";
  }
}

/// "rank 1 died", without waiting for its beats; empty where nobody of this node is lost.
std::string Watchdog::loss_here() const {
  if (!state_->node_board) return "";
  for (const NodeBoard::Line& line : state_->node_board->lines()) {
    if (&line == &state_->node_board->own() ||
        line.is_filled.load(std::memory_order_acquire) == 0 ||
        !state_->node_board->sees_process(line) || !is_gone(line.process()))
      continue;
    const std::optional<int> code = line.exit_code();
    // Others are stopped by signals, too.
    if (code == 0 || code == stopped_early_code) continue;
    return fmt::format("rank {} {}", line.world_rank, code ? "has left" : "died");
  }
  return "";
}

/// Decides whether this process is to leave, and leaves.
void Watchdog::decide() {
  std::optional<int> code;
  std::string reason;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [rank, lost] : state_->lost) {
      code = code_after_loss(state_->phase, state_->exit_code, rank, lost);
      if (!code) continue;
      // The first rank alone knows what to print, and leaves first.
      if (state_->phase == JobPhase::checking && state_->world_rank != 0 && rank != 0 &&
          lost.num_looks < looks_for_messages) {
        code.reset();
        continue;
      }
      reason = fmt::format("rank {} {}", rank, lost.how);
      break;
    }
    if (!code && state_->phase == JobPhase::ending && WatchClock::now() > state_->end_by) {
      code = state_->exit_code;
      reason = fmt::format("MPI has not ended after {} s", end_limit.count());
    }
  }
  if (!code && !state_->have_all_come && state_->num_looks > looks_until_missed &&
      ranks_here().size() < static_cast<std::size_t>(state_->launch.ranks_here)) {
    code = stopped_early_code;
    reason = "a rank of this node never started";
  }
  if (code) give_up(*code, reason);
}

/// Kills stopped ranks of this node; a launcher that lets others live would wait for them. The job
/// may be over before a rank that was stopped counts as lost.
void Watchdog::kill_stopped() {
  if (!state_->node_board || !state_->launch.outlives_ranks) return;
  const std::span<NodeBoard::Line> lines = state_->node_board->lines();
  const std::lock_guard lock(state_->mutex);
  for (std::size_t i = 0; i < std::min(lines.size(), state_->peers.size()); ++i) {
    const NodeBoard::Line& line = lines[i];
    if (!state_->peers[i].is_suspect() || !state_->node_board->sees_process(line)) continue;
    if (is_gone(line.process())) continue;
    ::kill(line.process_number, SIGKILL);
    const auto lost = state_->lost.find(line.world_rank);
    if (lost != state_->lost.end()) lost->second.is_gone = true;
  }
}

/// Leaves from the watchdog's own thread: all others may be stuck.
void Watchdog::give_up(int exit_code, const std::string& reason) {
  std::promise<void> done;
  const std::future<void> is_done = done.get_future();
  JobPhase phase{};
  {
    const std::lock_guard lock(state_->mutex);
    phase = state_->phase;
  }
  const auto last_words = [&] {
    kill_stopped();
    std::string path = state_->node_board ? state_->node_board->exit_status_path() : "";
    std::set<int> here = ranks_here();
    bool is_own_to_write = state_->world_rank == 0;
    std::function<void(int, const std::string&)> early_end;
    {
      const std::lock_guard lock(state_->mutex);
      if (path.empty()) path = state_->exit_status_path;
      if (path.empty() && (phase == JobPhase::starting || phase == JobPhase::checking))
        early_end = state_->early_end;
      const auto first = state_->lost.find(0);
      is_own_to_write |= first != state_->lost.end() && first->second.is_gone;
      for (const auto& [rank, lost] : state_->lost) here.erase(rank);
    }
    const bool is_resumable = exit_code == stopped_early_code && phase != JobPhase::checking;
    const std::string text = reason + (is_resumable ? "; the same command resumes" : "");
    if (is_own_to_write && !path.empty())
      create_exit_status(path, static_cast<ExitCode>(exit_code), text);
    // One of a node says it.
    if (here.empty() || *here.begin() == state_->world_rank) {
      log::set_level(log::Level::error);
      log::error(text);
    }
    if (early_end) early_end(exit_code, text);
    release_folder_locks();
    done.set_value();
  };
  try {
    std::thread(last_words).detach();
    is_done.wait_for(last_words_limit);
  } catch (const std::system_error&) {
    // No thread is to be had: it leaves without a word.
  }
  note_end(exit_code);
  if (waits_for_ever()) leave_now(exit_code);
  std::_Exit(exit_code);
}

}  // namespace dstune
