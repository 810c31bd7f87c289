#include "lock_holder.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "dstune/base/file.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// A file of the system, "" where it does not have it or does not show it.
std::string system_text(const std::string& path) {
  try {
    return std::string(trimmed(read_file(path)));
  } catch (const IoError&) {
    return "";
  }
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::string batch_job() {
  for (const char* name :
       {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return fmt::format("{}={}", name, value);
  }
  return "";
}

struct ProcessState {
  char letter = '?';  ///< 'Z' and 'X' of what has ended
  std::string started;
};

/// Nothing where the system has no such process, or hides it (proc(5), /proc/PID/stat).
std::optional<ProcessState> state_of(int process_id) {
  const std::string text = system_text(fmt::format("/proc/{}/stat", process_id));
  // The program's name in brackets may hold anything.
  const std::size_t end = text.rfind(')');
  if (end == text.npos || end + 2 > text.size()) return std::nullopt;
  const auto fields = split(std::string_view(text).substr(end + 2), ' ');
  constexpr std::size_t started_field = 22 - 3;  // the state is the third
  if (fields.size() <= started_field || fields.front().empty()) return std::nullopt;
  return ProcessState{fields.front().front(), std::string(fields[started_field])};
}

std::string text_member(const json::Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

LockHolder LockHolder::parse(const std::string& text) {
  const json::Value value = json::Value::parse(text, nullptr, false);
  if (!value.is_object()) return {};
  LockHolder holder{.host = text_member(value, "host"),
                    .boot = text_member(value, "boot"),
                    .pid_namespace = text_member(value, "pid_namespace"),
                    .started = text_member(value, "started"),
                    .batch_job = text_member(value, "batch_job"),
                    .since = text_member(value, "since")};
  const auto process = value.find("process");
  if (process != value.end() && process->is_number_integer())
    holder.process_id = process->get<int>();
  return holder;
}

std::string LockHolder::text() const {
  return json::Value({{"host", host},
                      {"process", process_id},
                      {"batch_job", batch_job},
                      {"since", since},
                      {"boot", boot},
                      {"pid_namespace", pid_namespace},
                      {"started", started}})
             .dump(-1, ' ', false, json::Value::error_handler_t::replace) +
         "\n";
}

std::string LockHolder::words() const {
  if (host.empty()) return "somebody who does not say who";
  return fmt::format("host {}, process {}, {}since {}", host, process_id,
                     batch_job.empty() ? "" : batch_job + ", ", since);
}

LockHolder this_process() {
  std::error_code ignored;
  LockHolder self{
      .host = host_name(),
      .process_id = ::getpid(),
      .boot = system_text("/proc/sys/kernel/random/boot_id"),
      .pid_namespace = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string(),
      .started = "",
      .batch_job = batch_job(),
      .since = format_time(std::chrono::system_clock::now())};
  if (const auto state = state_of(self.process_id)) self.started = state->started;
  return self;
}

Life life_of(const LockHolder& holder) {
  const LockHolder self = this_process();
  const bool is_numbered_here = !holder.boot.empty() && holder.boot == self.boot &&
                                !holder.pid_namespace.empty() &&
                                holder.pid_namespace == self.pid_namespace;
  if (!is_numbered_here || holder.process_id <= 0) return Life::unknown;
  if (::kill(holder.process_id, 0) != 0 && errno == ESRCH) return Life::dead;
  const auto state = state_of(holder.process_id);
  if (!state || holder.started.empty()) return Life::unknown;
  const bool has_ended = state->letter == 'Z' || state->letter == 'X';
  return has_ended || state->started != holder.started ? Life::dead : Life::alive;
}

}  // namespace dstune
