#pragma once
/// Files that are read and written piece by piece: nobody holds them as a whole. All functions:
/// Local. Errors: IoError with path and cause.

#include <functional>
#include <string>
#include <string_view>

#include "dstune/base/file.hpp"

namespace dstune {

/// A file that is written piece by piece under a temporary name beside `path`, and disappears
/// unless it takes its place. It keeps to what write_file_atomically() says.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, Readers readers = Readers::by_umask);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void add(std::string_view piece);
  /// Nothing more comes.
  void close(Durability durability);
  void take_place(Durability durability);

 private:
  void write_out();

  std::string target_, folder_, path_;
  std::string waiting_;  ///< small pieces go out together
  FileDescriptor descriptor_;
  bool is_in_place_ = false;
};

/// Reads a file without holding it: `take` gets one piece after the other. Refuses what read_file()
/// refuses.
void read_file_by_pieces(const std::string& path,
                         const std::function<void(std::string_view)>& take);

}  // namespace dstune
