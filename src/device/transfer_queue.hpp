#pragma once
/// Transfers between memory and a file in one direction, in the order asked for, by threads that
/// take block after block. Nothing is allocated after construction.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "dstune/device/disk.hpp"

namespace dstune {

class TransferQueue {
 public:
  enum class Direction { read, write };
  struct Transfer {
    std::byte* memory;
    std::int64_t offset_bytes, bytes;
  };

  /// `capacity`: transfers that are asked for and not done, at most.
  TransferQueue(int file, Direction direction, std::size_t capacity, const DiskAccess& access);
  /// Ends after the transfers that were asked for.
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// Waits where as many as the capacity are not done.
  void ask(const Transfer& transfer);
  [[nodiscard]] std::int64_t num_asked() const { return asked_; }
  /// Throws DeviceError where one of those failed.
  void wait_for(std::int64_t count);

 private:
  struct Entry {
    Transfer transfer{};
    std::int64_t begun_bytes = 0;  ///< given to a thread
    std::int64_t done_bytes = 0;
  };

  [[nodiscard]] Entry& entry(std::int64_t number) {
    return ring_[static_cast<std::size_t>(number) % ring_.size()];
  }
  void serve();
  void end() noexcept;
  /// 0, or why it failed.
  [[nodiscard]] int move(const Transfer& block) const;

  int file_;
  Direction direction_;
  std::int64_t block_bytes_;
  std::vector<Entry> ring_;
  std::int64_t asked_ = 0;  ///< by the one thread that asks

  std::mutex mutex_;
  std::condition_variable work_, progress_;
  std::int64_t queued_ = 0;  ///< asked for
  std::int64_t next_ = 0;    ///< the first with blocks that no thread has
  std::int64_t done_ = 0;    ///< all before it are done
  int error_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dstune
