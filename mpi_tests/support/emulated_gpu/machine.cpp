#include "machine.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace dstune::emulated {
namespace {

namespace fs = std::filesystem;

constexpr const char* uuid_begin = "GPU-00000000-0000-0000-0000-0000000000";

std::string word(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

/// "1:500", and whatever follows.
Trouble trouble(const std::string& text) {
  if (text.empty()) return {};
  return {std::stoi(text), std::stoi(text.substr(text.find(':') + 1))};
}

/// What this process holds, by GPU.
std::map<int, std::size_t>& held() {
  static std::map<int, std::size_t> all;
  return all;
}

/// Alone among threads, and among processes.
class Alone {
 public:
  Alone() : lock_(mutex()) {
    if (machine().folder.empty()) return;
    fs::create_directories(machine().folder);
    file_ = open((machine().folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ < 0 || flock(file_, LOCK_EX) != 0) std::abort();
  }
  ~Alone() {
    if (file_ >= 0) close(file_);
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
  int file_ = -1;
};

/// When the process began, in the kernel's ticks; 0: it has ended, though its parent may not have
/// asked how.
unsigned long long started_at(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string stat;
  if (!std::getline(file, stat)) return 0;
  // After the name, which may hold anything, comes the state; the start is the 20th word from it.
  std::istringstream words(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string state, word;
  words >> state;
  for (int i = 0; i < 18; ++i) words >> word;
  unsigned long long ticks = 0;
  return state != "Z" && words >> ticks ? ticks : 0;
}

/// "held.<gpu>.<process>"
std::string prefix_of(int gpu) {
  return "held." + std::to_string(gpu) + ".";
}

std::map<int, std::size_t> held_by_process(int gpu) {
  std::map<int, std::size_t> found;
  if (machine().folder.empty()) {
    if (held()[gpu] > 0) found[getpid()] = held()[gpu];
    return found;
  }
  const std::string prefix = prefix_of(gpu);
  for (const fs::directory_entry& entry : fs::directory_iterator(machine().folder)) {
    const std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) != 0) continue;
    std::ifstream file(entry.path());
    std::size_t bytes = 0;
    unsigned long long ticks = 0;
    // Another process may have the number by now.
    const int process = std::stoi(name.substr(prefix.size()));
    if (file >> bytes >> ticks && bytes > 0 && started_at(process) == ticks) found[process] = bytes;
  }
  return found;
}

/// All processes count.
std::size_t held_bytes(int gpu) {
  std::size_t sum = 0;
  for (const auto& [process, bytes] : held_by_process(gpu)) sum += bytes;
  return sum;
}

void hold(int gpu, std::size_t bytes) {
  held()[gpu] = bytes;
  if (machine().folder.empty()) return;
  std::ofstream(machine().folder / (prefix_of(gpu) + std::to_string(getpid())))
      << bytes << ' ' << started_at(getpid()) << '\n';
}

}  // namespace

bool lives(int process) {
  return started_at(process) != 0;
}

const Machine& machine() {
  static const Machine found = [] {
    const std::string hang = word("DSTUNE_EMULATED_HANG", "");
    return Machine{.gpus = std::stoi(word("DSTUNE_EMULATED_GPUS", "1")),
                   .bytes = std::stoull(word("DSTUNE_EMULATED_GPU_BYTES", "17179869184")),
                   .cuda_version = std::stoi(word("DSTUNE_EMULATED_DRIVER", "99000")),
                   .folder = word("DSTUNE_EMULATED_FOLDER", ""),
                   .loss = trouble(word("DSTUNE_EMULATED_LOSE", "")),
                   .hang = trouble(hang),
                   .calls_hang = hang.ends_with(":calls")};
  }();
  return found;
}

std::string uuid_of(int gpu) {
  return uuid_begin + std::string(gpu < 10 ? "0" : "") + std::to_string(gpu);
}

int gpu_of(const std::string& uuid) {
  for (int gpu = 0; gpu < machine().gpus; ++gpu)
    if (uuid == uuid_of(gpu)) return gpu;
  return -1;
}

std::map<int, std::size_t> holders(int gpu) {
  const Alone alone;
  return held_by_process(gpu);
}

std::size_t free_bytes(int gpu) {
  const Alone alone;
  return machine().bytes - held_bytes(gpu);
}

bool take_bytes(int gpu, std::size_t bytes) {
  const Alone alone;
  if (held_bytes(gpu) + bytes > machine().bytes) return false;
  hold(gpu, held()[gpu] + bytes);
  return true;
}

void give_back_bytes(int gpu, std::size_t bytes) {
  const Alone alone;
  hold(gpu, held()[gpu] - bytes);
}

}  // namespace dstune::emulated
