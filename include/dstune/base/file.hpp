#pragma once
/// Files that are whole or absent. All functions: Local. Errors: IoError with path and cause.

#include <cstddef>
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

/// Writes a temporary file beside `path` and renames it over it: a reader sees the old content or
/// the new one, never a part. `synced` also fsyncs file and folder.
void write_file_atomically(const std::string& path, std::string_view content,
                           Durability durability = Durability::synced);
/// Reads a whole file.
std::string read_file(const std::string& path);
/// Creates the folder and its parents where they are missing.
void create_folders(const std::string& path);

/// A file that only grows, for the journal.
class AppendFile {
 public:
  /// Opens or creates it; `keep_bytes` cuts a torn tail off first. A file that holds fewer is an
  /// error.
  AppendFile(const std::string& path, std::size_t keep_bytes);
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
