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

inline Message message_of(const void* data, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(data);
  return {first, first + bytes};
}

/// Functions may be called by any thread.
class Post {
 public:
  /// A process posts to itself alone where there is no folder.
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
