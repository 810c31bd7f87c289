#pragma once
/// Files that others made, read without errors: what can not be read is not there. Local.

#include <filesystem>
#include <string>
#include <vector>

namespace dstune {

class RootedFiles {
 public:
  /// `root` stands before every path; empty: this machine's files.
  explicit RootedFiles(std::string root) : root_(std::move(root)) {}

  [[nodiscard]] bool is_there(const std::filesystem::path& path) const;
  [[nodiscard]] bool is_folder(const std::filesystem::path& path) const;
  /// Tells whether it can be started.
  [[nodiscard]] bool is_program(const std::filesystem::path& path) const;
  /// Empty where it is longer than a MiB.
  [[nodiscard]] std::string text(const std::filesystem::path& path) const;
  [[nodiscard]] std::string first_line(const std::filesystem::path& path) const;
  /// Names in the folder, sorted.
  [[nodiscard]] std::vector<std::string> names(const std::filesystem::path& folder) const;
  /// The path that the link leads to; the path itself if it is no link.
  [[nodiscard]] std::filesystem::path target(const std::filesystem::path& path) const;

 private:
  [[nodiscard]] std::filesystem::path place(const std::filesystem::path& path) const;

  std::string root_;
};

}  // namespace dstune
