#include "dstune/base/process.hpp"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <string>

#include <fmt/format.h>
#include <sys/stat.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

std::optional<ProcessStatus> status_of(int number) {
  try {
    return parse_process_status(read_file(fmt::format("/proc/{}/stat", number)));
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<ProcessStatus> parse_process_status(std::string_view text) {
  // proc(5): number (name) state …; the name may hold anything. The start is the 22nd field.
  constexpr std::size_t start_after_name = 20;
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string_view::npos) return std::nullopt;
  const auto fields = split(text.substr(name_end + 2), ' ');
  if (fields.size() < start_after_name || fields.front().size() != 1) return std::nullopt;
  ProcessStatus status;
  status.state = fields.front().front();
  const std::string_view start = fields[start_after_name - 1];
  const auto [end, error] =
      std::from_chars(start.data(), start.data() + start.size(), status.started_at);
  if (error != std::errc() || end != start.data() + start.size()) return std::nullopt;
  return status;
}

ProcessId process_of(int number) {
  const auto status = status_of(number);
  return {number, status ? status->started_at : 0};
}

bool is_gone(const ProcessId& process) {
  if (const auto status = status_of(process.number))
    return status->state == 'Z' || status->state == 'X' || status->started_at != process.started_at;
  // Files of others' processes may be hidden; whether there is one is not.
  return ::kill(process.number, 0) != 0 && errno == ESRCH;
}

std::uint64_t process_numbering() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace dstune
