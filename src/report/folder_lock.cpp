#include "dstune/report/folder_lock.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "lock_holder.hpp"
#include "parts.hpp"

namespace dstune {

namespace {

using Seconds = std::chrono::duration<double>;

[[noreturn]] void fail(const std::string& path, int cause) {
  throw IoError(
      fmt::format("can not lock with {}: {}", path, std::generic_category().message(cause)));
}

struct stat status_of(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.value(), &status) != 0) fail(path, errno);
  return status;
}

double modified_s(const struct stat& status) {
  return static_cast<double>(status.st_mtim.tv_sec) +
         static_cast<double>(status.st_mtim.tv_nsec) * 1e-9;
}

/// Opened, and not just asked for: network file systems then look at the server's file.
FileDescriptor opened(const std::string& path) {
  return FileDescriptor(
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

void write_text(const FileDescriptor& file, const std::string& path, const std::string& text) {
  const auto written = ::write(file.value(), text.data(), text.size());
  if (written < 0) fail(path, errno);
  if (static_cast<std::size_t>(written) != text.size()) fail(path, ENOSPC);
}

/// A lock before it has its name.
class Draft {
 public:
  explicit Draft(const std::string& folder) : path_(folder + "/.dstune-lock-XXXXXX.tmp") {
    file_.reset(::mkostemps(path_.data(), 4, O_CLOEXEC));
    if (!file_) fail(path_, errno);
    write_text(file_, path_, this_process().text());
    // Whoever else may write in the folder is to read who holds it.
    ::fchmod(file_.value(), 0644);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() { ::unlink(path_.c_str()); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] FileDescriptor take() { return std::move(file_); }
  /// Now, by the clock of the file system.
  [[nodiscard]] double now_s() const {
    if (::futimens(file_.value(), nullptr) != 0) fail(path_, errno);
    return modified_s(status_of(file_, path_));
  }
  /// Gives it the name as well; false where there is such a file.
  [[nodiscard]] bool link(const std::string& name) const {
    if (::link(path_.c_str(), name.c_str()) == 0) return true;
    const int cause = errno;
    // The answer of a network file system may be lost, and the call repeated.
    if (status_of(file_, path_).st_nlink == 2) return true;
    if (cause == EEXIST) return false;
    throw std::system_error(cause, std::generic_category());
  }

 private:
  std::string path_;
  FileDescriptor file_;
};

/// The lock that was found in its place.
struct Found {
  LockHolder holder;
  double modified_s = 0;
};

/// Nothing where it has just gone.
std::optional<Found> look_at(const std::string& path) {
  const FileDescriptor file = opened(path);
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail(path, errno);
  const struct stat status = status_of(file, path);
  if (!S_ISREG(status.st_mode)) throw IoError(path + " is no regular file: remove it");
  std::string text(4096, '\0');
  const auto got = ::read(file.value(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return Found{LockHolder::parse(text), modified_s(status)};
}

/// `age_s`: since the last touch.
bool is_free(const LockHolder& holder, double age_s, const LockTimes& times) {
  if (age_s > Seconds(times.stale).count()) return true;
  const Life life = life_of(holder);
  const bool is_same_job =
      !holder.batch_job.empty() && holder.batch_job == this_process().batch_job;
  return life == Life::dead || (is_same_job && life == Life::unknown);
}

IoError held(const std::string& folder, const LockHolder& holder, double age_s,
             const LockTimes& times) {
  return IoError(fmt::format(
      "another job holds {} ({}; its last sign of life is {:.0f} s old): wait for its end, or name "
      "another --results-dir. If that job is gone, its lock counts for nothing {:.0f} s after that "
      "sign",
      folder, holder.words(), std::max(0.0, age_s), Seconds(times.stale).count()));
}

/// A lock that this process has.
struct Held {
  std::string path;
  struct stat status {};
};
std::mutex held_mutex;
std::vector<Held> all_held;

bool is_same_file(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

void release_folder_locks() noexcept {
  // Whoever holds the mutex is just taking or giving one back; this process leaves meanwhile.
  const std::unique_lock lock(held_mutex, std::try_to_lock);
  if (!lock) return;
  for (const Held& held : all_held) {
    struct stat found {};
    if (::lstat(held.path.c_str(), &found) == 0 && is_same_file(found, held.status))
      ::unlink(held.path.c_str());
  }
  all_held.clear();
}

FolderLock::FolderLock(const std::string& folder, LockTimes times)
    : folder_(folder), path_(fmt::format("{}/{}", folder, file_name::lock)), times_(times) {
  // The one that is in the way may go meanwhile; who loses this race again and again waits.
  constexpr int max_tries = 10;
  for (int tries = 0; !create(); ++tries) {
    const std::optional<Found> found = look_at(path_);
    if (!found && tries < max_tries) continue;
    if (!found) throw IoError(path_ + " comes and goes: other jobs use the folder");
    const double age_s = Draft(folder_).now_s() - found->modified_s;
    if (!is_free(found->holder, age_s, times_)) throw held(folder_, found->holder, age_s, times_);
    take_over();
    break;
  }
  {
    const std::lock_guard lock(held_mutex);
    all_held.push_back({path_, status_of(file_, path_)});
  }
  heartbeat_ = std::jthread([this](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    while (!stopped.wait_for(lock, stop, times_.heartbeat, [] { return false; }) &&
           !stop.stop_requested()) {
      // The file system's clock counts. If this fails the lock becomes stale, and check() tells.
      ::futimens(file_.value(), nullptr);
    }
  });
}

FolderLock::~FolderLock() {
  heartbeat_ = {};
  const std::lock_guard lock(held_mutex);
  std::erase_if(all_held, [this](const Held& held) { return held.path == path_; });
  if (is_mine()) ::unlink(path_.c_str());
}

bool FolderLock::create() {
  Draft draft(folder_);
  try {
    if (!draft.link(path_)) return false;
    file_ = draft.take();
    return true;
  } catch (const std::system_error&) {
    // No hard links here: then the file has its name before it has its text.
    file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file_ && errno == EEXIST) return false;
    if (!file_) fail(path_, errno);
    write_text(file_, path_, this_process().text());
    return true;
  }
}

void FolderLock::take_over() {
  Draft draft(folder_);
  if (::rename(draft.path().c_str(), path_.c_str()) != 0) fail(path_, errno);
  file_ = draft.take();
  // Several jobs may take it over at once: the last one has it, and the others find that here.
  std::this_thread::sleep_for(times_.settling);
  check();
}

bool FolderLock::is_mine() const {
  const FileDescriptor named = opened(path_);
  struct stat mine {};
  struct stat found {};
  return named && ::fstat(named.value(), &found) == 0 && ::fstat(file_.value(), &mine) == 0 &&
         found.st_ino == mine.st_ino;
}

void FolderLock::check() const {
  if (is_mine()) return;
  const std::optional<Found> found = look_at(path_);
  if (!found) {
    throw IoError(
        path_ + " was removed, so that another job may begin there: this one writes nothing more");
  }
  throw IoError(fmt::format("another job has taken {} over ({}): this one writes nothing more",
                            folder_, found->holder.words()));
}

}  // namespace dstune
