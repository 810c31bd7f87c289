#include "post.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "machine.hpp"

namespace dstune::emulated {
namespace {

namespace fs = std::filesystem;

struct Own {
  std::mutex mutex;
  std::map<std::string, Message> messages;
};

Own& own() {
  static auto& one = *new Own;
  return one;
}

fs::path path_of(const std::string& name) {
  return machine().folder / name;
}

}  // namespace

void post(const std::string& name, Message message) {
  if (machine().folder.empty()) {
    const std::lock_guard lock(own().mutex);
    own().messages[name] = std::move(message);
    return;
  }
  const fs::path path = path_of(name), unfinished = path_of(name + ".unfinished");
  std::ofstream(unfinished, std::ios::binary)
      .write(reinterpret_cast<const char*>(message.data()),
             static_cast<std::streamsize>(message.size()));
  fs::rename(unfinished, path);
}

std::optional<Message> read_post(const std::string& name) {
  if (machine().folder.empty()) {
    const std::lock_guard lock(own().mutex);
    const auto found = own().messages.find(name);
    if (found == own().messages.end()) return std::nullopt;
    return found->second;
  }
  std::ifstream file(path_of(name), std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  Message message(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(message.data()), static_cast<std::streamsize>(message.size()));
  return message;
}

void remove_post(const std::string& name) {
  if (machine().folder.empty()) {
    const std::lock_guard lock(own().mutex);
    own().messages.erase(name);
    return;
  }
  std::error_code ignored;
  fs::remove(path_of(name), ignored);
}

}  // namespace dstune::emulated
