#include "dstune/base/file.hpp"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file_pieces.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

[[noreturn]] void fail(const char* action, const std::string& path, int cause) {
  throw IoError(
      fmt::format("can not {} {}: {}", action, path, std::generic_category().message(cause)));
}

/// The kind of a file that is no regular one.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "directory";
  if (S_ISLNK(mode)) return "symbolic link";
  if (S_ISFIFO(mode)) return "fifo";
  if (S_ISSOCK(mode)) return "socket";
  return "device";
}

[[noreturn]] void refuse_kind(const char* action, const std::string& path, mode_t mode) {
  throw IoError(
      fmt::format("can not {} {}: it is a {}; name a regular file", action, path, kind_of(mode)));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// 0, or the errno that stopped it.
int write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

void sync_folder(const std::string& folder) {
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor) fail("open", folder, errno);
  // Some file systems have nothing to sync for a folder and say EINVAL.
  if (::fsync(descriptor.value()) != 0 && errno != EINVAL) fail("sync", folder, errno);
}

}  // namespace

void FileDescriptorTraits::close(int descriptor) noexcept {
  ::close(descriptor);
}

void check_output_file(const std::string& path) {
  struct stat found {};
  // The rename takes the place of a symbolic link; the link's target stays as it is.
  if (::lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISLNK(found.st_mode))
    refuse_kind("write", path, found.st_mode);
}

AtomicFile::AtomicFile(const std::string& path, Readers readers)
    : target_(path), folder_(folder_of(path)) {
  check_output_file(path);
  const mode_t mode = readers == Readers::owner ? 0600 : 0666;
  static std::atomic<unsigned> count{0};
  int cause = EEXIST;
  while (cause == EEXIST) {  // left behind by a dead process, or another host's on a shared disk
    path_ = fmt::format("{}/.dstune-{}-{}.tmp", folder_, ::getpid(), count++);
    descriptor_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    cause = descriptor_ ? 0 : errno;
  }
  if (cause != 0) fail("write", target_, cause);
}

AtomicFile::~AtomicFile() {
  if (!is_in_place_) ::unlink(path_.c_str());
}

void AtomicFile::write_out() {
  if (const int cause = write_all(descriptor_.value(), waiting_); cause != 0)
    fail("write", target_, cause);
  waiting_.clear();
}

void AtomicFile::add(std::string_view piece) {
  constexpr std::size_t enough = std::size_t{1} << 16;
  waiting_ += piece;
  if (waiting_.size() >= enough) write_out();
}

void AtomicFile::close(Durability durability) {
  write_out();
  if (durability == Durability::synced && ::fsync(descriptor_.value()) != 0)
    fail("sync", target_, errno);
  // Network file systems report a full disk or quota only here.
  if (::close(descriptor_.release()) != 0) fail("write", target_, errno);
}

void AtomicFile::take_place(Durability durability) {
  if (::rename(path_.c_str(), target_.c_str()) != 0) fail("write", target_, errno);
  is_in_place_ = true;
  if (durability == Durability::synced) sync_folder(folder_);
}

void write_file_atomically(const std::string& path, std::string_view content, Durability durability,
                           Readers readers) {
  AtomicFile file(path, readers);
  file.add(content);
  file.close(durability);
  file.take_place(durability);
}

std::string absolute_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::string read_input_file(const std::string& path, std::size_t max_bytes) {
  try {
    return read_file(path, max_bytes);
  } catch (const IoError& error) {
    throw InputError({{path, "", 0, error.what()}});
  }
}

namespace {

FileDescriptor open_to_read(const std::string& path, struct stat& found) {
  // Without O_NONBLOCK the opening of a fifo waits for somebody who writes it.
  FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!descriptor) fail("read", path, errno);
  if (::fstat(descriptor.value(), &found) != 0) fail("read", path, errno);
  if (!S_ISREG(found.st_mode)) refuse_kind("read", path, found.st_mode);
  return descriptor;
}

void read_pieces(const std::string& path, int descriptor,
                 const std::function<void(std::string_view)>& take) {
  char piece[1 << 16];
  while (true) {
    const ssize_t got = ::read(descriptor, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) return;
    take({piece, static_cast<std::size_t>(got)});
  }
}

}  // namespace

void read_file_by_pieces(const std::string& path,
                         const std::function<void(std::string_view)>& take) {
  struct stat found {};
  const FileDescriptor descriptor = open_to_read(path, found);
  read_pieces(path, descriptor.value(), take);
}

std::string read_file(const std::string& path, std::size_t max_bytes) {
  struct stat found {};
  const FileDescriptor descriptor = open_to_read(path, found);
  const auto check_size = [&](std::size_t bytes) {
    if (bytes <= max_bytes) return;
    throw IoError(fmt::format("can not read {}: it is larger than {}; give a smaller file", path,
                              format_bytes(static_cast<std::int64_t>(max_bytes))));
  };
  check_size(static_cast<std::size_t>(found.st_size));
  std::string content;
  read_pieces(path, descriptor.value(), [&](std::string_view piece) {
    content += piece;
    check_size(content.size());  // the file may grow meanwhile
  });
  return content;
}

void create_folders(const std::string& path) {
  std::error_code cause;
  std::filesystem::create_directories(path, cause);
  if (cause) fail("create folder", path, cause.value());
}

AppendFile::AppendFile(const std::string& path, std::size_t keep_bytes)
    : path_(path),
      descriptor_(::open(
          path.c_str(),
          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666)),
      size_bytes_(keep_bytes) {
  if (!descriptor_ && errno == ELOOP) refuse_kind("open", path_, S_IFLNK);
  if (!descriptor_) fail("open", path_, errno);
  struct stat status {};
  if (::fstat(descriptor_.value(), &status) != 0) fail("open", path_, errno);
  if (!S_ISREG(status.st_mode)) refuse_kind("open", path_, status.st_mode);
  const auto found_bytes = static_cast<std::size_t>(status.st_size);
  if (found_bytes < keep_bytes)
    throw IoError(fmt::format("can not continue {}: it holds {} bytes of the {} to keep", path_,
                              found_bytes, keep_bytes));
  if (found_bytes > keep_bytes &&
      ::ftruncate(descriptor_.value(), static_cast<off_t>(keep_bytes)) != 0)
    fail("shorten", path_, errno);
  sync_folder(folder_of(path_));
}

void AppendFile::check() const {
  struct stat mine {};
  struct stat named {};
  if (::fstat(descriptor_.value(), &mine) != 0) fail("look at", path_, errno);
  if (::lstat(path_.c_str(), &named) != 0) {
    if (errno == ENOENT) throw IoError(path_ + " was removed while this job was writing it");
    fail("look at", path_, errno);
  }
  if (named.st_ino != mine.st_ino)
    throw IoError(path_ + " was replaced by another file while this job was writing it");
  if (static_cast<std::size_t>(mine.st_size) != size_bytes_)
    throw IoError(fmt::format("{} has {} bytes instead of {}: somebody else changed it", path_,
                              mine.st_size, size_bytes_));
}

void AppendFile::append(std::string_view bytes) {
  if (const int cause = write_all(descriptor_.value(), bytes); cause != 0) {
    // Later bytes must not follow a torn piece; replay drops it if even this fails.
    [[maybe_unused]] const int ignored =
        ::ftruncate(descriptor_.value(), static_cast<off_t>(size_bytes_));
    fail("write", path_, cause);
  }
  size_bytes_ += bytes.size();
}

void AppendFile::sync() {
  if (::fdatasync(descriptor_.value()) != 0) fail("sync", path_, errno);
}

}  // namespace dstune
