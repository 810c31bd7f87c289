#include "dstune/device/disk.hpp"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/handle.hpp"
#include "transfer_queue.hpp"

namespace dstune {
namespace {

constexpr std::int64_t block_alignment = 4096;

struct Descriptor {
  using Handle = int;
  static int null() { return -1; }
  static void close(int file) noexcept { ::close(file); }
};
using File = UniqueHandle<Descriptor>;

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

struct DiskFile::State {
  State(std::unique_ptr<Share> taken, File opened, bool direct, std::size_t transfers,
        const DiskAccess& access)
      : share(std::move(taken)),
        file(std::move(opened)),
        is_direct(direct),
        reads(file.value(), TransferQueue::Direction::read, transfers, access),
        writes(file.value(), TransferQueue::Direction::write, transfers, access) {}

  std::unique_ptr<Share> share;
  File file;
  bool is_direct;
  TransferQueue reads, writes;
};

DiskFile::DiskFile(const std::string& folder, std::int64_t bytes, std::size_t transfers,
                   const DiskAccess& access, MemoryBudget& budget) {
  require(bytes > 0 && bytes % block_alignment == 0, "a file on a disk is of whole blocks");
  auto share = std::make_unique<Share>(budget, bytes);
  const std::string place = existing_folder(folder);
  bool is_direct = true;
  int opened = open_nameless(place, O_DIRECT);
  if (opened == -EINVAL) {
    is_direct = false;
    opened = open_nameless(place, 0);
  }
  if (opened < 0) throw failure("a file in " + place, -opened);
  File file(opened);
  // All of it now: a disk that is full shows before the steps begin.
  const int error = allocate(file.value(), bytes);
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
    throw OutOfMemory(static_cast<std::size_t>(bytes),
                      static_cast<std::size_t>(free_disk_bytes(place)), "the disk of " + place);
  }
  if (error != 0) throw failure("space for a file in " + place, error);
  DiskAccess rounded = access;
  rounded.block_bytes =
      (access.block_bytes + block_alignment - 1) / block_alignment * block_alignment;
  state_ =
      std::make_unique<State>(std::move(share), std::move(file), is_direct, transfers, rounded);
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
