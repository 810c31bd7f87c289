#pragma once
/// The order in which a device works: queues that run side by side (CUDA: streams), and events
/// between them.

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "dstune/base/wait.hpp"

namespace dstune {

/// A record of the work that queues were asked for between begin() and end(), to be asked for again
/// as a whole (CUDA: a graph). The device's memory that it takes goes with it; what it was asked to
/// touch outlives it.
class Recording {
 public:
  Recording() = default;
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

/// The recorder of a device's queues. All functions: Local, of one thread.
class Recorder {
 public:
  Recorder() = default;
  virtual ~Recorder() = default;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// From here on what the queues are asked for is noted and not done; queue 0 is used. The host
  /// waits for nothing until end(). A queue waits for events that were recorded since; such an
  /// event is waited for after end() only when it was recorded again. The stamps that are noted are
  /// numbered from first_stamp on. Throws DeviceError.
  virtual void begin(int first_stamp) = 0;
  /// Queue 0 is used then. Throws DeviceError; then drop() is due.
  virtual std::unique_ptr<Recording> end() = 0;
  /// Instead of end(): nothing of it remains. Queue 0 is used then.
  virtual void drop() noexcept = 0;
  /// Asks for all of it again, between what all queues were asked for before and what they will be.
  /// Its stamps are numbered from first_stamp on now. Queue 0 is used then. Before the next
  /// prepare() of the queues. Throws DeviceError.
  virtual void replay(Recording& recording, int first_stamp) = 0;
};

/// A device's queues. A thread's work for the device (kernels, copies, collectives) goes to the
/// queue that it used last and is done in that order. Events alone order the work of different
/// queues. A processor has done what it was asked for when the call returns: there most of this is
/// nothing. All functions: Local, of one thread.
class Queues {
 public:
  Queues() = default;
  virtual ~Queues() = default;
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  /// How many there are of each, numbered from 0.
  struct Numbers {
    int queues = 0, events = 0, stamps = 0;
  };
  /// Waits for what is still under way; then no event and no stamp is recorded, and queue 0 is
  /// used. Nothing else takes memory. The waiter ends every finish() until the next call. Throws as
  /// finish().
  virtual void prepare(const Numbers& numbers, const Waiter& waiter) = 0;
  /// Sends work from here on to this queue.
  virtual void use(int queue) = 0;
  /// The event is reached when what the used queue was asked for so far is done.
  virtual void record(int event) = 0;
  /// The used queue goes on when the event, as recorded last, is reached; never recorded: at once.
  virtual void wait(int event) = 0;
  /// Within the device's memory, or between it and pinned memory of the host in either direction,
  /// in the used queue.
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  /// The calling thread waits until the event is reached, or until the work of the used queue, or
  /// of all of them, is done. It polls, so that it can leave work that never ends. Throws
  /// CollectiveError (deadline, abort), DeviceError.
  virtual void finish(int event) = 0;
  virtual void finish_used() = 0;
  virtual void finish_all() = 0;
  /// Notes the time at which what the used queue was asked for so far is done.
  virtual void stamp(int stamp) = 0;
  /// From one stamp to a later one, of work that is finished.
  virtual double seconds_between(int first, int second) = 0;
  /// The used queue as libraries want it (cudaStream_t); null on a processor.
  [[nodiscard]] virtual void* native() const = 0;
  /// Requests up to end_range() have this name in a profiler's picture of the thread
  /// (NVTX). `name` ends with a 0 and lives as long as the process. Ranges may lie in one another.
  virtual void begin_range(const char* /*name*/) {}
  virtual void end_range() noexcept {}
  /// Null where what is asked for can not be recorded. It lives as long as the queues.
  [[nodiscard]] virtual Recorder* recorder() { return nullptr; }
};

/// The queues of a processor, which has done everything when a call returns.
class CpuQueues : public Queues {
 public:
  void prepare(const Numbers& numbers, const Waiter& waiter) override;
  void use(int /*queue*/) override {}
  void record(int /*event*/) override {}
  void wait(int /*event*/) override {}
  void copy(void* to, const void* from, std::int64_t bytes) override;
  void finish(int /*event*/) override {}
  void finish_used() override {}
  void finish_all() override {}
  void stamp(int stamp) override;
  double seconds_between(int first, int second) override;
  [[nodiscard]] void* native() const override { return nullptr; }

 private:
  std::vector<std::chrono::steady_clock::time_point> stamps_;
};

}  // namespace dstune
