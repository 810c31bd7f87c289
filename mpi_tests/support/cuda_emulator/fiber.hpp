#pragma once
/// Threads of one's own making, which run one at a time and give way where they say so.

#include <functional>
#include <memory>

namespace dstune::test {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// What the next resume() begins; the last one must be done. It throws nothing.
  void start(std::function<void()> work);
  /// Runs it until it gives way or is done.
  void resume();
  [[nodiscard]] bool is_done() const;
  /// Called by the work: back to resume().
  void give_way();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dstune::test
