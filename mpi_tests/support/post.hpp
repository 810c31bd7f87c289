#pragma once
/// Messages between processes as files of the folder where they meet: written once, whole, and read
/// by whoever waits for them.

#include <cstddef>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dstune::test {

using Message = std::vector<std::byte>;

/// Functions may be called by any thread.
class Post {
 public:
  /// Without a folder a process posts to itself alone.
  explicit Post(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void put(const std::string& name, Message message);
  /// Nothing before it is posted.
  [[nodiscard]] std::optional<Message> read(const std::string& name);
  void remove(const std::string& name);

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  std::map<std::string, Message> own_;
};

}  // namespace dstune::test
