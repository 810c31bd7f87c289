#include "dstune/base/rooted_files.hpp"

#include <algorithm>

#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace fs = std::filesystem;

fs::path RootedFiles::place(const fs::path& path) const {
  return root_.empty() ? path : fs::path(root_) / path.relative_path();
}

bool RootedFiles::is_there(const fs::path& path) const {
  std::error_code ignored;
  return fs::exists(place(path), ignored);
}

bool RootedFiles::is_folder(const fs::path& path) const {
  std::error_code ignored;
  return fs::is_directory(place(path), ignored);
}

bool RootedFiles::is_program(const fs::path& path) const {
  std::error_code ignored;
  return fs::is_regular_file(place(path), ignored) && access(place(path).c_str(), X_OK) == 0;
}

std::string RootedFiles::text(const fs::path& path) const {
  constexpr std::size_t longest_bytes = 1 << 20;
  std::error_code ignored;
  if (!fs::is_regular_file(place(path), ignored)) return "";
  try {
    return read_file(place(path).string(), longest_bytes);
  } catch (const Error&) {
    return "";
  }
}

std::string RootedFiles::first_line(const fs::path& path) const {
  const std::string all = text(path);
  return std::string(trimmed(all.substr(0, all.find('\n'))));
}

std::vector<std::string> RootedFiles::names(const fs::path& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(place(folder), error), end; !error && at != end;
       at.increment(error))
    names.push_back(at->path().filename().string());
  std::ranges::sort(names);
  return names;
}

fs::path RootedFiles::target(const fs::path& path) const {
  std::error_code error;
  const fs::path leads_to = fs::read_symlink(place(path), error);
  return error ? path : path.parent_path() / leads_to;
}

}  // namespace dstune
