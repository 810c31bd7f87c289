#include "process.hpp"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dstune::e2e {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds look_interval{5};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  // A process may end between the two: then reading its file fails, and that text is empty.
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Parent of each process of this machine.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> parent_of;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    const std::string stat = text_of(entry.path() / "stat");
    // The name in brackets may hold anything; behind it come the state and the parent.
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos || end + 4 >= stat.size()) continue;
    parent_of[std::atoi(name.c_str())] = std::atoi(stat.c_str() + end + 4);
  }
  return parent_of;
}

/// The process and everything below it, parents before children.
std::vector<pid_t> family(pid_t root) {
  const std::map<pid_t, pid_t> parent_of = parents();
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& [pid, parent] : parent_of)
      if (parent == found[i]) found.push_back(pid);
  }
  return found;
}

/// Read from its environment; nothing where it is no rank.
std::optional<int> rank_of(pid_t pid) {
  const std::string environment = text_of(fs::path("/proc") / std::to_string(pid) / "environ");
  for (const std::string name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="}) {
    const std::size_t at = (std::string(1, '\0') + environment).find('\0' + name);
    if (at != std::string::npos) return std::atoi(environment.c_str() + at + name.size());
  }
  return std::nullopt;
}

[[noreturn]] void become(const ProcessSpec& spec, std::vector<char*>& words) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int in = open("/dev/null", O_RDONLY);
  const int out = open(spec.out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err = open(spec.err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool is_ready = in >= 0 && out >= 0 && err >= 0 && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 &&
                        dup2(err, 2) >= 0 && chdir(spec.folder.c_str()) == 0;
  if (!is_ready) _exit(126);
  for (const auto& [name, value] : spec.environment) setenv(name.c_str(), value.c_str(), 1);
  execvp(words.front(), words.data());
  _exit(127);
}

}  // namespace

Process::Process(ProcessSpec spec) : spec_(std::move(spec)), began_(Clock::now()) {
  // Ranks whose mpirun was killed become children of this process, which can then wait for them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<char*> words;
  for (std::string& word : spec_.words) words.push_back(word.data());
  words.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("can not start " + spec_.words.front());
  if (pid_ == 0) become(spec_, words);
}

Process::Process(Process&& other) noexcept
    : spec_(std::move(other.spec_)),
      pid_(std::exchange(other.pid_, -1)),
      began_(other.began_),
      ended_at_(other.ended_at_),
      has_ended_(other.has_ended_),
      is_late_(other.is_late_),
      exit_code_(other.exit_code_) {}

Process::~Process() {
  if (pid_ > 0 && !has_ended_) kill_all();
}

void Process::note_end(int wait_status) {
  has_ended_ = true;
  ended_at_ = Clock::now();
  exit_code_ = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

bool Process::is_running() {
  int status = 0;
  if (!has_ended_ && waitpid(pid_, &status, WNOHANG) == pid_) note_end(status);
  return !has_ended_;
}

void Process::signal(int number) const {
  if (!has_ended_) kill(pid_, number);
}

void Process::kill_all() {
  if (!is_running()) return;
  const std::vector<pid_t> doomed = family(pid_);
  for (const pid_t pid : doomed) kill(pid, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_) note_end(status);
  for (const pid_t pid : doomed) {
    // Not a child yet or any more: whoever else is the parent has it to wait for.
    if (pid != pid_) waitpid(pid, &status, 0);
  }
}

std::map<int, pid_t> Process::ranks() const {
  std::map<int, pid_t> found;
  if (has_ended_) return found;
  for (const pid_t pid : family(pid_))
    if (const auto rank = rank_of(pid)) found[*rank] = pid;
  return found;
}

bool is_alive(pid_t pid) {
  const std::string stat = text_of(fs::path("/proc") / std::to_string(pid) / "stat");
  // The name in brackets may hold anything; behind it comes the state.
  const std::size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' &&
         stat[end + 2] != 'X';
}

bool blocks_signal(pid_t pid, int number) {
  std::istringstream lines(text_of(fs::path("/proc") / std::to_string(pid) / "status"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    const std::uint64_t mask =
        std::stoull(line.substr(line.find_first_of("0123456789abcdef", 7)), nullptr, 16);
    return (mask >> (number - 1) & 1U) != 0;
  }
  return false;
}

Ended Process::wait() {
  const auto limit = std::chrono::duration<double>(spec_.limit_s);
  while (is_running()) {
    if (Clock::now() - began_ > limit) {
      is_late_ = true;
      kill_all();
      break;
    }
    std::this_thread::sleep_for(look_interval);
  }
  Ended ended;
  ended.exit_code = exit_code_;
  ended.is_late = is_late_;
  ended.wall_s = std::chrono::duration<double>(ended_at_ - began_).count();
  ended.out = text_of(spec_.out_path);
  ended.err = text_of(spec_.err_path);
  return ended;
}

}  // namespace dstune::e2e
