#pragma once
/// Files that are whole or absent. All functions: Local. Errors: IoError with path and cause.

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

#include "dstune/base/handle.hpp"

namespace dstune {

struct FileDescriptorTraits {
  using Handle = int;
  static int null() { return -1; }
  static void close(int descriptor) noexcept;
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

/// How far a written file is pushed before the call returns.
enum class Durability { rename_only, synced };
/// The readers of a written file: those that the umask allows, or its owner alone.
enum class Readers { by_umask, owner };

/// Refuses a fifo, a device, a socket or a folder at `path`, whose place a file would take.
void check_output_file(const std::string& path);
/// Writes a temporary file beside `path` and renames it over it: a reader sees the old content or
/// the new one, never a part. `synced` also fsyncs file and folder. A symbolic link is replaced,
/// not followed; check_output_file() refuses the rest.
void write_file_atomically(const std::string& path, std::string_view content,
                           Durability durability = Durability::synced,
                           Readers readers = Readers::by_umask);

/// The path from the root on, without "." and "..". Nothing needs to be there.
[[nodiscard]] std::string absolute_path(const std::string& path);

/// Inputs that people write are smaller.
inline constexpr std::size_t max_input_bytes = std::size_t{64} << 20;
/// Reads a whole file, of `max_bytes` at most. Refuses what is no file at once: a fifo would wait
/// for its writer, and a device may never end.
std::string read_file(const std::string& path,
                      std::size_t max_bytes = std::numeric_limits<std::size_t>::max());
/// The same of what a user names. Throws InputError.
std::string read_input_file(const std::string& path, std::size_t max_bytes = max_input_bytes);
/// Creates the folder and its parents where they are missing.
void create_folders(const std::string& path);

/// A file that only grows, for the journal.
class AppendFile {
 public:
  /// Opens or creates it; `keep_bytes` cuts a torn tail off first. A file that holds fewer is an
  /// error, and so are a symbolic link and what is no file.
  AppendFile(const std::string& path, std::size_t keep_bytes);
  /// Throws where the path leads to another file by now, or to none, and where somebody else has
  /// shortened or extended this one.
  void check() const;
  /// All of the bytes; where they do not fit, none of them.
  void append(std::string_view bytes);
  /// fdatasync: what was appended survives a crash after this returns.
  void sync();

 private:
  std::string path_;
  FileDescriptor descriptor_;
  std::size_t size_bytes_;
};

}  // namespace dstune
