#pragma once
/// The kinds of errors. Exceptions inside a process, statuses between ranks, exit codes outside:
/// main maps each kind to its exit code, the worker maps OutOfMemory and CollectiveError to an
/// experiment's status.

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace dstune {

/// The process's exit codes; all ranks leave with the same one.
enum class ExitCode : int {
  ok = 0,
  internal = 1,
  usage = 2,
  bad_input = 3,
  nothing_feasible = 4,
  no_device = 6,
  not_writable = 7,
  stopped_early = 75,
};

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Bad command line.
struct UsageError : Error {
  using Error::Error;
};

/// One thing wrong with the input: where it is and how it is mended.
struct Problem {
  std::string file;
  std::string pointer;  ///< JSON pointer, "" for the document or where there is none
  int line = 0;         ///< 1-based, 0 where there is none
  std::string message;  ///< what is wrong and how to fix it, in one sentence
  bool is_unknown_key = false;
  bool is_late = false;  ///< DeepSpeed's config takes it, and the training fails

  /// "space.json:12: /zero_optimization/stage: …"
  [[nodiscard]] std::string text() const;
  bool operator==(const Problem&) const = default;
};

/// Bad input: every problem that was found, at least one.
class InputError : public Error {
 public:
  explicit InputError(std::vector<Problem> problems);
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// A result that can not be written.
struct IoError : Error {
  using Error::Error;
};

/// An MPI call failed: nothing is trusted after it.
struct MpiError : Error {
  using Error::Error;
};

/// No usable device, or one that is lost.
struct DeviceError : Error {
  using Error::Error;
};

/// More than the memory budget, or an allocation that failed (0: nobody says how large): an answer.
struct OutOfMemory : Error {
  OutOfMemory(std::size_t requested_bytes, std::size_t available_bytes, const std::string& what);
};

/// A wait inside a group ended without completion.
class CollectiveError : public Error {
 public:
  enum class Cause { deadline, aborted };
  CollectiveError(Cause why, const std::string& what) : Error(what), why_(why) {}
  [[nodiscard]] Cause why() const { return why_; }

 private:
  Cause why_;
};

/// A broken invariant of ours.
struct LogicError : Error {
  using Error::Error;
};

/// Throws LogicError with the caller's file and line where the condition does not hold.
void require(bool condition, const char* what, const char* file = __builtin_FILE(),
             int line = __builtin_LINE());

}  // namespace dstune
