#pragma once
/// The file `lock` of a results folder: one job at a time writes there. It needs nothing of the
/// file system but exclusive creation, renaming and times of modification. Rank 0. Local.

#include <chrono>
#include <string>
#include <thread>

#include "dstune/base/file.hpp"

namespace dstune {

/// Tests take others.
struct LockTimes {
  std::chrono::milliseconds heartbeat{10'000};  ///< how often the file is touched
  std::chrono::milliseconds stale{60'000};      ///< without a touch for so long, nobody holds it
  /// After taking a lock over, for others who do so at the same time to show themselves.
  std::chrono::milliseconds settling{200};
};

class FolderLock {
 public:
  /// Takes the lock of a folder that exists. A lock is taken over if its process is known to be
  /// dead, or if it was taken in the same batch job and is not known to live. So is one that is
  /// stale by the file system's own times. Throws IoError that names who holds it otherwise.
  explicit FolderLock(const std::string& folder, LockTimes times = {});
  /// Removes the file where it is still this lock's.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Throws IoError where the lock was removed or taken over. Any thread.
  void check() const;

 private:
  [[nodiscard]] bool create();
  [[nodiscard]] bool is_mine() const;
  void take_over();

  std::string folder_;
  std::string path_;
  LockTimes times_;
  FileDescriptor file_;  ///< of the lock, whatever becomes of its name
  std::jthread heartbeat_;
};

/// Removes the locks of this process, where they are still its: for one that leaves at once. Any
/// thread.
void release_folder_locks() noexcept;

}  // namespace dstune
