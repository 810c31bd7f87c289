#pragma once
/// One command that a test starts: how it ends, what it wrote, and how to get rid of it with
/// everything that it started. Local.

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dstune::e2e {

/// How a command ended.
struct Ended {
  int exit_code = -1;    ///< 128 + the signal's number where one ended it
  bool is_late = false;  ///< it was killed at its limit
  double wall_s = 0;
  std::string out;
  std::string err;
};

/// What to start, where.
struct ProcessSpec {
  std::vector<std::string> words;                  ///< the program and its arguments
  std::map<std::string, std::string> environment;  ///< besides the test's own
  std::filesystem::path folder;                    ///< its working directory
  std::filesystem::path out_path;
  std::filesystem::path err_path;
  double limit_s = 60;
};

/// A running command. Whatever is left of it and of its descendants dies with this object.
class Process {
 public:
  /// Throws std::runtime_error where it can not be started.
  explicit Process(ProcessSpec spec);
  ~Process();
  Process(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  Process& operator=(Process&&) = delete;

  [[nodiscard]] bool is_running();
  /// To the command itself, not to what it started.
  void signal(int number) const;
  /// SIGKILL to the command and to all its descendants, as a node that fails would end them.
  void kill_all();
  /// The ranks that it has started so far, by world rank, as their launcher tells them.
  [[nodiscard]] std::map<int, pid_t> ranks() const;
  /// Until it ends; past its limit everything is killed.
  Ended wait();

 private:
  using Clock = std::chrono::steady_clock;
  void note_end(int wait_status);

  ProcessSpec spec_;
  pid_t pid_ = -1;
  Clock::time_point began_;
  Clock::time_point ended_at_;
  bool has_ended_ = false;
  bool is_late_ = false;
  int exit_code_ = -1;
};

/// It has not ended, though it may be stopped.
[[nodiscard]] bool is_alive(pid_t pid);
/// Whether the first thread of the process blocks the signal. False where there is no process.
[[nodiscard]] bool blocks_signal(pid_t pid, int number);

}  // namespace dstune::e2e
