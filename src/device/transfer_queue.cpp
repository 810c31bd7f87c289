#include "transfer_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include <unistd.h>

#include "dstune/base/error.hpp"

namespace dstune {

TransferQueue::TransferQueue(int file, Direction direction, std::size_t capacity,
                             const DiskAccess& access)
    : file_(file),
      direction_(direction),
      block_bytes_(access.block_bytes),
      ring_(std::max<std::size_t>(1, capacity)) {
  require(access.threads >= 1 && block_bytes_ >= 1, "transfers need a thread and a block");
  threads_.reserve(static_cast<std::size_t>(access.threads));
  try {
    for (int thread = 0; thread < access.threads; ++thread)
      threads_.emplace_back([this] { serve(); });
  } catch (...) {
    end();  // those that could be had
    throw;
  }
}

TransferQueue::~TransferQueue() {
  end();
}

void TransferQueue::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TransferQueue::ask(const Transfer& transfer) {
  require(transfer.bytes > 0, "a transfer moves something");
  {
    std::unique_lock lock(mutex_);
    progress_.wait(lock, [&] { return queued_ - done_ < static_cast<std::int64_t>(ring_.size()); });
    entry(queued_++) = {transfer, 0, 0};
  }
  ++asked_;
  work_.notify_all();
}

void TransferQueue::wait_for(std::int64_t count) {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return done_ >= count; });
  if (error_ == 0) return;
  throw DeviceError(std::string(direction_ == Direction::read ? "reading from" : "writing to") +
                    " the disk: " + std::system_category().message(error_));
}

void TransferQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return next_ < queued_ || ends_; });
    if (next_ == queued_) return;
    const std::int64_t number = next_;
    Entry& mine = entry(number);
    const std::int64_t first = mine.begun_bytes;
    const std::int64_t bytes = std::min(block_bytes_, mine.transfer.bytes - first);
    mine.begun_bytes += bytes;
    if (mine.begun_bytes == mine.transfer.bytes) ++next_;
    const Transfer block{mine.transfer.memory + first, mine.transfer.offset_bytes + first, bytes};
    lock.unlock();
    const int error = move(block);
    lock.lock();
    if (error_ == 0) error_ = error;
    mine.done_bytes += bytes;
    const std::int64_t before = done_;
    while (done_ < queued_ && entry(done_).done_bytes == entry(done_).transfer.bytes) ++done_;
    if (done_ > before) progress_.notify_all();
  }
}

int TransferQueue::move(const Transfer& block) const {
  std::int64_t moved = 0;
  while (moved < block.bytes) {
    std::byte* const memory = block.memory + moved;
    const auto left = static_cast<std::size_t>(block.bytes - moved);
    const off_t offset = block.offset_bytes + moved;
    const ssize_t bytes = direction_ == Direction::read ? pread(file_, memory, left, offset)
                                                        : pwrite(file_, memory, left, offset);
    if (bytes > 0) {
      moved += bytes;
    } else if (bytes == 0) {
      return EIO;  // the file has all its bytes: neither direction ends before them
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace dstune
