#pragma once
/// What queues are asked for, noted once and then asked for again as a whole (CUDA: a graph).

#include <memory>

namespace dstune {

/// What queues were asked for between begin() and end(). The device's memory that it takes goes
/// with it; what it was asked to touch outlives it.
class Recording {
 public:
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 protected:
  Recording() = default;
};

/// Of the queues of a device. All functions: Local, of one thread.
class Recorder {
 public:
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

 protected:
  Recorder() = default;
};

}  // namespace dstune
