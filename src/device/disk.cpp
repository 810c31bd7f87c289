#include "dstune/device/disk.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

constexpr std::int64_t block_alignment = 4096;

/// Bytes of a budget, given back at the end.
class Share {
 public:
  Share(MemoryBudget& budget, std::int64_t bytes) : budget_(budget), bytes_(bytes) {
    budget_.take(bytes_);
  }
  ~Share() { budget_.give_back(bytes_); }
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

 private:
  MemoryBudget& budget_;
  std::int64_t bytes_;
};

/// Transfers between memory and a file in one direction, in the order asked for, by threads that
/// take block after block. Nothing is allocated after construction.
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

std::string existing_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(folder);
  while (!std::filesystem::is_directory(path, ignored) && path.has_relative_path())
    path = path.parent_path();
  return path.string();
}

DeviceError failure(const std::string& what, int error) {
  return DeviceError(what + ": " + std::system_category().message(error));
}

/// A file that never had a name where the file system can do that, else one whose name is gone at
/// once. Negative: the negative error.
int open_nameless(const std::string& folder, int flags) {
  const int file = open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
  if (file >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT) return -errno;
  std::string name = folder + "/dstune-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC | flags);
  const int error = errno;
  if (named < 0) return -error;
  unlink(name.c_str());
  return named;
}

/// 0, or why there is no room.
int allocate(int file, std::int64_t bytes) {
  // Beyond this limit the system would end the process.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(bytes) > limit.rlim_cur) {
    return EFBIG;
  }
  return posix_fallocate(file, 0, bytes);
}

}  // namespace

std::int64_t free_disk_bytes(const std::string& folder) {
  struct statvfs figures {};
  if (statvfs(existing_folder(folder).c_str(), &figures) != 0)
    throw failure("the disk of " + folder, errno);
  return static_cast<std::int64_t>(figures.f_bavail) * static_cast<std::int64_t>(figures.f_frsize);
}

namespace {

/// All of its bytes are taken now: a disk that is full shows before the steps begin. `is_direct`:
/// whether its transfers go past the system's cache.
FileDescriptor make_file(const std::string& folder, std::int64_t bytes, bool& is_direct) {
  const std::string place = existing_folder(folder);
  int opened = open_nameless(place, O_DIRECT);
  is_direct = opened != -EINVAL;
  if (!is_direct) opened = open_nameless(place, 0);
  if (opened < 0) throw failure("a file in " + place, -opened);
  FileDescriptor file(opened);
  const int error = allocate(file.value(), bytes);
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
    throw OutOfMemory(static_cast<std::size_t>(bytes),
                      static_cast<std::size_t>(free_disk_bytes(place)), "the disk of " + place);
  }
  if (error != 0) throw failure("space for a file in " + place, error);
  return file;
}

}  // namespace

struct DiskFile::State {
  State(const std::string& folder, std::int64_t bytes, std::size_t transfers,
        const DiskAccess& access, MemoryBudget& budget)
      : share(budget, bytes),
        file(make_file(folder, bytes, is_direct)),
        reads(file.value(), TransferQueue::Direction::read, transfers, access),
        writes(file.value(), TransferQueue::Direction::write, transfers, access) {}

  Share share;
  bool is_direct = true;
  FileDescriptor file;
  TransferQueue reads, writes;
};

DiskFile::DiskFile(const std::string& folder, std::int64_t bytes, std::size_t transfers,
                   const DiskAccess& access, MemoryBudget& budget) {
  require(bytes > 0 && bytes % block_alignment == 0, "a file on a disk is of whole blocks");
  DiskAccess rounded = access;
  rounded.block_bytes =
      (access.block_bytes + block_alignment - 1) / block_alignment * block_alignment;
  state_ = std::make_unique<State>(folder, bytes, transfers, rounded, budget);
}

DiskFile::~DiskFile() = default;

void DiskFile::read(std::byte* to, std::int64_t offset_bytes, std::int64_t bytes) {
  state_->reads.ask({to, offset_bytes, bytes});
}

void DiskFile::write(const std::byte* from, std::int64_t offset_bytes, std::int64_t bytes) {
  // The queue of this direction only reads it.
  state_->writes.ask({const_cast<std::byte*>(from), offset_bytes, bytes});
}

std::int64_t DiskFile::num_reads() const {
  return state_->reads.num_asked();
}
std::int64_t DiskFile::num_writes() const {
  return state_->writes.num_asked();
}
void DiskFile::wait_for_reads(std::int64_t count) {
  state_->reads.wait_for(count);
}
void DiskFile::wait_for_writes(std::int64_t count) {
  state_->writes.wait_for(count);
}
bool DiskFile::is_direct() const {
  return state_->is_direct;
}

}  // namespace dstune
