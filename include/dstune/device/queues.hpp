#pragma once
/// The order in which a device works: queues that run side by side (CUDA: streams), and events
/// between them.

#include <cstdint>

#include "dstune/base/wait.hpp"

namespace dstune {

/// What a thread asks of the device (kernels, copies, collectives) goes to the queue that it used
/// last and is done in that order; what lies in different queues is ordered by events alone. A
/// processor has done what it was asked for when the call returns: there most of this is nothing.
/// All functions: Local, of one thread.
class Queues {
 public:
  virtual ~Queues() = default;
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  /// So many queues and events, numbered from 0, none of them recorded; nothing else takes memory.
  /// The waiter ends every finish() until the next call.
  virtual void prepare(int queues, int events, const Waiter& waiter) = 0;
  /// What is asked for from here on goes to this queue. 0 at first.
  virtual void use(int queue) = 0;
  /// The event is reached when what the used queue was asked for so far is done.
  virtual void record(int event) = 0;
  /// The used queue goes on when the event, as recorded last, is reached; never recorded: at once.
  virtual void wait(int event) = 0;
  /// Between the device's memory and pinned memory of the host, in either direction, in the used
  /// queue.
  virtual void copy(void* to, const void* from, std::int64_t bytes) = 0;
  /// The calling thread waits until the event is reached, or all queues are done: a poll, so that
  /// what never ends is left. Throws CollectiveError (deadline, abort), DeviceError.
  virtual void finish(int event) = 0;
  virtual void finish_all() = 0;
  /// The used queue as libraries want it (cudaStream_t); null on a processor.
  [[nodiscard]] virtual void* native() const = 0;

 protected:
  Queues() = default;
};

}  // namespace dstune
