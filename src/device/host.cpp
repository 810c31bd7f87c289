#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "dstune/base/cgroup.hpp"
#include "dstune/base/error.hpp"
#include "dstune/device/device.hpp"

namespace dstune {
namespace {

// What stands after "key" and a colon in a file of /proc, without the blanks before it.
std::optional<std::string> find_line(const char* path, const std::string& key) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return std::nullopt;
}

std::optional<std::int64_t> leading_number(const std::string& text) {
  std::int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc{}) return std::nullopt;
  return number;
}

std::int64_t kibibytes(const char* path, const std::string& key) {
  const std::optional<std::string> line = find_line(path, key);
  const std::optional<std::int64_t> number = line ? leading_number(*line) : std::nullopt;
  if (!number) throw DeviceError(std::string(path) + ": no " + key);
  return *number * 1024;
}

}  // namespace

std::int64_t host_memory_bytes() {
  std::int64_t bytes = kibibytes("/proc/meminfo", "MemTotal");
  const CgroupFile limit{"memory", "memory.limit_in_bytes", "memory.max"};
  for (const std::string& content : read_cgroup_files(limit)) {
    // "max" is no number; version 1 writes a huge one for no limit.
    if (const auto number = leading_number(content)) bytes = std::min(bytes, *number);
  }
  return bytes;
}

std::int64_t process_resident_bytes() {
  return kibibytes("/proc/self/status", "VmRSS");
}
std::int64_t process_peak_resident_bytes() {
  return kibibytes("/proc/self/status", "VmHWM");
}

double processor_clock_mhz() {
  const std::optional<std::string> text = find_line("/proc/cpuinfo", "cpu MHz");
  return text ? std::strtod(text->c_str(), nullptr) : 0;
}

std::string processor_name() {
  return find_line("/proc/cpuinfo", "model name").value_or("unknown processor");
}

}  // namespace dstune
