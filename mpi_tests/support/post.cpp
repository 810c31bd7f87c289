#include "post.hpp"

#include <fstream>

namespace dstune::test {

void Post::put(const std::string& name, Message message) {
  if (folder_.empty()) {
    const std::lock_guard lock(mutex_);
    own_[name] = std::move(message);
    return;
  }
  const std::filesystem::path unfinished = folder_ / (name + ".unfinished");
  std::ofstream(unfinished, std::ios::binary)
      .write(reinterpret_cast<const char*>(message.data()),
             static_cast<std::streamsize>(message.size()));
  std::filesystem::rename(unfinished, folder_ / name);
}

std::optional<Message> Post::read(const std::string& name) {
  if (folder_.empty()) {
    const std::lock_guard lock(mutex_);
    const auto found = own_.find(name);
    return found == own_.end() ? std::nullopt : std::optional(found->second);
  }
  std::ifstream file(folder_ / name, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  Message message(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(message.data()), static_cast<std::streamsize>(message.size()));
  return message;
}

void Post::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  own_.erase(name);
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove(folder_ / name, ignored);
}

}  // namespace dstune::test
