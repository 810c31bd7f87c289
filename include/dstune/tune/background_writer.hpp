#pragma once
/// Writes files on a thread of its own, in order: creating a file may take a disk a third of a
/// millisecond, and the controller has better things to do meanwhile. For files that the journal
/// can restore. Local.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace dstune {

class BackgroundWriter {
 public:
  BackgroundWriter();
  /// Finishes what was added, unless something failed.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Throws what an earlier work threw; nothing is done after that.
  void add(std::function<void()> work);
  /// Waits until everything is written. Throws likewise.
  void drain();

 private:
  void run();
  void check_failure();  ///< with the mutex held

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::exception_ptr failure_;
  bool is_busy_ = false;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace dstune
