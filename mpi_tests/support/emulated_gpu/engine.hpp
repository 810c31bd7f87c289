#pragma once
/// What the emulated GPUs of this process do: a thread that takes, again and again, one of the
/// streams that can go on, in an order that DSTUNE_EMULATED_ORDER draws (default 0).

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "objects.hpp"

namespace dstune::emulated {

class Engine {
 public:
  static Engine& instance();
  Engine();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Taken by every call of the runtime.
  std::unique_lock<std::mutex> locked() { return std::unique_lock(mutex_); }

  // All below: with the lock.

  CUstream_st* make_stream(int device);
  /// It goes once it has done everything.
  void leave(CUstream_st* stream);
  [[nodiscard]] bool knows(CUstream_st* stream) const { return streams_.contains(stream); }
  /// CUDA's default one, of a device.
  CUstream_st* default_stream(int device);
  /// What the stream does after what it was asked for before.
  void ask(CUstream_st& stream, Task task);
  /// Before ask(): as CUDA does, waits where about a thousand things have not begun yet.
  void wait_for_room(std::unique_lock<std::mutex>& lock, const CUstream_st& stream);
  /// Waits, and lets others go on meanwhile.
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& holds);
  [[nodiscard]] bool is_idle(int device) const;
  template <class Each>
  void each_stream(Each&& each) const {
    for (CUstream_st* const stream : streams_) each(*stream);
  }
  /// 0, or what was found wrong in what a GPU did: from then on its context is lost.
  [[nodiscard]] int fault() const { return fault_; }
  /// Never comes back where calls do not any more.
  void come_back_unless_hung() const;
  /// A number below `count`, another one each time.
  std::size_t draw(std::size_t count) { return random_() % count; }

 private:
  void run();
  bool go_on(CUstream_st& stream, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable asked_, moved_;
  std::set<CUstream_st*> streams_;
  std::vector<CUstream_st*> defaults_;  ///< by device
  std::mt19937_64 random_;
  int fault_ = 0;
  int done_on_losing_gpu_ = 0, done_on_hanging_gpu_ = 0;
  int hung_gpu_ = -1;
  bool ends_ = false;
  std::thread thread_;
};

/// Until what the event was last recorded behind is done. With the lock.
Task waiting_for(CUevent_st& event);
/// When the event is reached; it counts as recorded from now on. With the lock.
Task reaching(CUevent_st& event);
/// A graph's nodes, each when those are done that it comes after. With the lock.
Task launching(const CUgraphExec_st& executable);

}  // namespace dstune::emulated
