#pragma once
/// The way between the program and the Python that it runs in. Python's main thread serves, the
/// program's worker thread asks: commands and replies are JSON objects and alternate strictly, as
/// with a coroutine. Python may serve from nested calls, so that a user's script can be continued
/// where it stands. docs/engine.md describes the commands.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dstune/base/json.hpp"
#include "dstune/base/text.hpp"
#include "dstune/base/wait.hpp"

namespace dstune::engine {

/// The reason why Python did not do what it was asked.
enum class ErrorKind { exception, out_of_memory, refused, not_rerunnable, interrupted };
[[nodiscard]] const EnumTexts& texts_of(ErrorKind);

/// An error that Python reports.
struct PythonError : Error {
  PythonError(ErrorKind why, const std::string& message, std::string trace, std::string printed)
      : Error(message), kind(why), traceback(std::move(trace)), output(std::move(printed)) {}
  ErrorKind kind;
  std::string traceback;  ///< ends with the message; may be empty
  std::string output;     ///< the last that the user's code printed
};

/// Python is still inside a command that was to end: nothing can be asked of it any more.
class PythonStuck : public CollectiveError {
 public:
  using CollectiveError::CollectiveError;
};

class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// The channel of this process; null: it does not run inside Python. Local.
  [[nodiscard]] static Channel* current();
  /// Makes it; once a process. Never destroyed: threads of Python may be inside it.
  static Channel& open();

  // The program's side: one thread at a time.

  /// Python's reply. If the waiter ends the wait, Python is interrupted, and has `drain` to come
  /// back. Throws PythonError; what ended the wait (CollectiveError); PythonStuck, also where an
  /// earlier call has thrown it.
  json::Value call(const json::Value& command, const Waiter& waiter,
                   std::chrono::duration<double> drain);
  /// The `error` of the last failure that Python told, be it after an interrupt; null: none since
  /// it was taken last.
  [[nodiscard]] json::Value take_error();
  /// Tells whether Python is lost to the program.
  [[nodiscard]] bool is_stuck() const;
  /// The activity that Python last reported since the last such call; empty: nothing new.
  [[nodiscard]] std::string take_progress();
  /// No command comes any more: exchange() and wait_interrupt() end.
  void close(int exit_code);
  /// Waits until Python has heard of it; false where it has not.
  bool wait_closed(std::chrono::duration<double> timeout);

  // Python's side.

  /// Hands over the reply (null: none yet), and waits for the next command; null: it is over. The
  /// text stays until the next call.
  const char* exchange(const char* reply);
  /// Waits until the main thread is to be interrupted: 1; 0 where it is over.
  int wait_interrupt();
  /// Connected sockets that a blocked collective may wait on; replaces what was said before.
  void note_sockets(std::span<const int> sockets);
  void note_progress(const char* text);
  [[nodiscard]] int exit_code() const;

 private:
  json::Value take_reply(const std::string& name);
  void keep_error(const json::Value& reply);
  /// Ends what Python's main thread may be blocked in.
  void interrupt();
  bool has_reply();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> command_;  ///< not yet taken by Python
  std::string taken_;                   ///< that Python has
  std::optional<std::string> reply_;
  json::Value error_;  ///< of the last failure; the program's side alone has it
  struct Socket {
    int descriptor = -1;
    std::uint64_t inode = 0;
  };
  std::vector<Socket> sockets_;
  std::string progress_;
  int interrupts_ = 0;  ///< not yet taken
  int exit_code_ = 0;
  bool is_closed_ = false;
  bool has_heard_close_ = false;
  bool is_stuck_ = false;
};

}  // namespace dstune::engine
