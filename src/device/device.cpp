#include "dstune/device/device.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "dstune/base/cgroup.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

// Returns what stands after "key" and a colon in a file of /proc, without the blanks before it.
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

const EnumTexts& texts_of(BackendKind) {
  static constexpr auto rows = numbered<2>({"cpu", "cuda"});
  static constexpr EnumTexts texts{rows};
  return texts;
}

CpuDevice::CpuDevice(std::int64_t memory_limit_bytes, int threads)
    : Device({.kernels = &kernels::cpu_table(),
              .memory = std::make_unique<SystemMemory>(),
              .host_memory = std::make_unique<SystemMemory>(),
              .queues = std::make_unique<CpuQueues>(),
              .limit_bytes = memory_limit_bytes,
              .host_limit_bytes = memory_limit_bytes,
              .threads = threads,
              .description = "cpu (" + processor_name() + ", " + kernels::cpu_table().name + ", " +
                             std::to_string(threads) + (threads == 1 ? " thread)" : " threads)")}) {
  require(threads >= 1, "a device needs a thread");
  kernels::set_cpu_threads(threads);
}

Device::Device(Parts parts)
    : parts_(std::move(parts)),
      budget_(parts_.limit_bytes),
      host_budget_(parts_.host_limit_bytes),
      input_budget_(no_limit),
      disk_budget_(no_limit, "disk budget"),
      arenas_(make_arenas()),
      staging_arena_(input_budget_, *parts_.host_memory) {}

std::unique_ptr<Device::Arenas> Device::make_arenas() {
  // Arenas stay where they are: what is built in them points to them.
  return std::unique_ptr<Arenas>(new Arenas{{budget_, *parts_.memory},
                                            {host_budget_, *parts_.host_memory},
                                            {input_budget_, *parts_.memory},
                                            {input_budget_, *parts_.host_memory}});
}

void CpuQueues::prepare(const Numbers& numbers, const Waiter& /*waiter*/) {
  stamps_.assign(static_cast<std::size_t>(numbers.stamps), {});
}

void CpuQueues::copy(void* to, const void* from, std::int64_t bytes) {
  // All threads copy; the rest that is no whole number of elements is small.
  constexpr std::int64_t element_bytes = sizeof(float);
  const std::int64_t elements = bytes / element_bytes;
  kernels::cpu_table().convert(kernels::DType::f32, to, kernels::DType::f32, from, elements);
  const std::int64_t done = elements * element_bytes;
  std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
              static_cast<std::size_t>(bytes - done));
}

void CpuQueues::stamp(int stamp) {
  stamps_[static_cast<std::size_t>(stamp)] = std::chrono::steady_clock::now();
}

double CpuQueues::seconds_between(int first, int second) {
  const auto at = [&](int stamp) { return stamps_[static_cast<std::size_t>(stamp)]; };
  return std::chrono::duration<double>(at(second) - at(first)).count();
}

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

double processor_clock_mhz() {
  const std::optional<std::string> text = find_line("/proc/cpuinfo", "cpu MHz");
  return text ? std::strtod(text->c_str(), nullptr) : 0;
}

std::string processor_name() {
  return find_line("/proc/cpuinfo", "model name").value_or("unknown processor");
}

}  // namespace dstune
