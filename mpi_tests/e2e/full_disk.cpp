// Loaded into the program before its own libraries: from the write of number DSTUNE_FULL_DISK_FROM
// on, every write to a file below DSTUNE_FULL_DISK_IN fails as on a full disk. The first one is
// said on standard error.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

using Write = ssize_t(int, const void*, std::size_t);

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool is_below_folder(int descriptor) {
  const char* const folder = std::getenv("DSTUNE_FULL_DISK_IN");
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return folder != nullptr && length > 0 &&
         std::string(path, static_cast<std::size_t>(length)).rfind(folder, 0) == 0;
}

/// Counts it, and says whether it fails.
bool fails(int descriptor) {
  static std::atomic<long> count{0};
  static const long first = std::atol(std::getenv("DSTUNE_FULL_DISK_FROM"));
  if (!is_below_folder(descriptor)) return false;
  const long number = ++count;
  if (number < first) return false;
  errno = ENOSPC;
  if (number > first) return true;
  constexpr char said[] = "the disk is full now\n";
  static_cast<void>(next<Write>("write")(STDERR_FILENO, said, sizeof said - 1) < 0);
  errno = ENOSPC;
  return true;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  static const auto own = next<Write>("write");
  return fails(descriptor) ? -1 : own(descriptor, bytes, size);
}

ssize_t writev(int descriptor, const iovec* parts, int num_parts) {
  static const auto own = next<ssize_t(int, const iovec*, int)>("writev");
  return fails(descriptor) ? -1 : own(descriptor, parts, num_parts);
}

ssize_t pwrite(int descriptor, const void* bytes, std::size_t size, off_t offset) {
  static const auto own = next<ssize_t(int, const void*, std::size_t, off_t)>("pwrite");
  return fails(descriptor) ? -1 : own(descriptor, bytes, size, offset);
}
}
