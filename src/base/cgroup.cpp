#include "dstune/base/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // where
  bool version2 = false;
};

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// mountinfo(5): id parent major:minor root point options [tags…] - type source super-options
std::optional<Mount> parse_mount(const std::string& line, std::string_view controller) {
  const std::vector<std::string_view> words = split(line, ' ');
  const auto dash = std::find(words.begin(), words.end(), "-");
  if (words.size() < 6 || std::distance(dash, words.end()) < 4) return std::nullopt;
  const bool version2 = dash[1] == "cgroup2";
  const bool version1 = dash[1] == "cgroup" && contains(split(dash[3], ','), controller);
  if (!version1 && !version2) return std::nullopt;
  return Mount{std::string(words[3]), std::string(words[4]), version2};
}

// /proc/self/cgroup: hierarchy:controllers:path, version 2 with an empty list.
std::optional<std::string> own_path(const std::string& root, std::string_view controller,
                                    bool version2) {
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version2 ? controllers.empty() : contains(split(controllers, ','), controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// A container may see its own group as the mount's root while the path is the host's.
std::string below_mount(const std::string& path, const Mount& mount) {
  if (mount.root == "/" || !path.starts_with(mount.root)) return path;
  return path.substr(mount.root.size());
}

void read_upwards(std::vector<std::string>& contents, const std::string& top, std::string path,
                  std::string_view name) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  for (;;) {
    std::ifstream file(top + path + "/" + std::string(name));
    if (file)
      contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

std::vector<std::string> read_cgroup_files(const CgroupFile& file, const std::string& root) {
  std::vector<std::string> contents;
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::optional<Mount> mount = parse_mount(line, file.controller);
    if (!mount) continue;
    const std::string_view name = mount->version2 ? file.name_v2 : file.name_v1;
    if (name.empty()) continue;
    const std::optional<std::string> path = own_path(root, file.controller, mount->version2);
    if (!path) continue;
    read_upwards(contents, root + mount->point, below_mount(*path, *mount), name);
  }
  return contents;
}

}  // namespace dstune
