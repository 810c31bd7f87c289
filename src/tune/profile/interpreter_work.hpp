#pragma once
/// Work like that of CPython's interpreter, done by one thread, so that a profile tells how fast
/// this machine is at it where no Python is. DeepSpeed's costs of the host grow with it
/// (docs/trust.md).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

namespace dstune {

/// The work itself, always the same. Its instructions are chosen by the data that they change:
/// indirect calls that are hard to foresee, among more code than a processor's first cache holds.
/// They take and drop references, look names up, allocate and free small objects, and follow
/// pointers through several MB. No address decides anything. Local.
class InterpreterWork {
 public:
  InterpreterWork();
  ~InterpreterWork();
  InterpreterWork(const InterpreterWork&) = delete;
  InterpreterWork& operator=(const InterpreterWork&) = delete;

  /// A pass: so many instructions, from where the last one ended.
  static constexpr int pass_instructions = 100'000;
  void pass();
  /// Depends on all that was done.
  [[nodiscard]] std::uint64_t result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The least of several passes, in turns with other work, which drives it out of caches. A pass is
/// timed by this thread's processor time: the load of others does not count. Local.
class InterpreterTime {
 public:
  /// The first passes fill the caches and are not timed.
  void pass();
  /// Makes passes until so many were timed.
  void complete(int passes);
  /// Seconds of a pass; 0 before any was timed.
  [[nodiscard]] double least_s() const { return least_s_.value_or(0); }

 private:
  InterpreterWork work_;
  int passes_ = 0;
  std::optional<double> least_s_;
};

}  // namespace dstune
