#include "dstune/base/crash.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#include "dstune/base/error.hpp"

namespace dstune::crash {
namespace {

struct Watched {
  int number;
  std::string_view name;
};
constexpr std::array<Watched, 5> watched{{{SIGSEGV, "SIGSEGV"},
                                          {SIGBUS, "SIGBUS"},
                                          {SIGFPE, "SIGFPE"},
                                          {SIGILL, "SIGILL"},
                                          {SIGABRT, "SIGABRT"}}};
constexpr std::size_t stack_bytes = std::size_t{64} << 10;
constexpr int max_frames = 48;

// The handler reads this. It may be called anywhere in the program, so all is there before.
std::array<struct sigaction, watched.size()> old_actions;
std::array<char, 4096> exit_status_path;
std::atomic<bool> has_path = false;
std::atomic<bool> answers_for_job = false;
std::atomic<bool> is_ending = false;
std::atomic<int> num_experiments = 0;
std::atomic<void (*)(int)> last_note = nullptr;
thread_local const char* part_of_thread = nullptr;
thread_local int experiments_of_thread = 0;

/// A text that needs no memory of others; what does not fit is left out.
class Text {
 public:
  Text& operator<<(std::string_view text) {
    for (const char letter : text)
      if (size_ < letters_.size()) letters_[size_++] = letter;
    return *this;
  }
  /// Adds the name of a file or a function, without what a JSON text would have to escape.
  Text& add_name(std::string_view name) {
    for (const char letter : name) {
      const bool is_plain = letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
      *this << std::string_view(is_plain ? &letter : "?", 1);
    }
    return *this;
  }
  Text& add_number(std::uint64_t number, int base = 10, std::size_t digits = 0) {
    std::array<char, 24> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number, base).ptr;
    const auto length = static_cast<std::size_t>(end - text.data());
    for (std::size_t digit = length; digit < digits; ++digit) *this << "0";
    return *this << std::string_view(text.data(), length);
  }
  [[nodiscard]] std::string_view view() const { return {letters_.data(), size_}; }

 private:
  std::array<char, 2048> letters_{};
  std::size_t size_ = 0;
};

void write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// The time in the form of format_time().
void add_time(Text& text) {
  using namespace std::chrono;
  const auto now = floor<microseconds>(system_clock::now());
  const auto day = floor<days>(now);
  const year_month_day date(day);
  const hh_mm_ss clock(now - day);
  const auto add = [&](auto number, std::size_t digits, std::string_view after) {
    text.add_number(static_cast<std::uint64_t>(number), 10, digits) << after;
  };
  add(static_cast<int>(date.year()), 4, "-");
  add(static_cast<unsigned>(date.month()), 2, "-");
  add(static_cast<unsigned>(date.day()), 2, "T");
  add(clock.hours().count(), 2, ":");
  add(clock.minutes().count(), 2, ":");
  add(clock.seconds().count(), 2, ".");
  add(clock.subseconds().count(), 6, "Z");
}

/// The processor's place; null where this machine's registers are not known here.
void* interrupted_at(const void* context) {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return reinterpret_cast<void*>(registers.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void*>(registers.pc);
#else
  (void)registers;
  return nullptr;
#endif
}

/// "dstune-mpi+0x1a2b (function)", as addr2line takes it.
void add_place(Text& text, void* address) {
  Dl_info found{};
  if (::dladdr(address, &found) == 0 || found.dli_fname == nullptr) {
    text << "0x";
    text.add_number(reinterpret_cast<std::uintptr_t>(address), 16);
    return;
  }
  const std::string_view path = found.dli_fname;
  text.add_name(path.substr(path.rfind('/') + 1)) << "+0x";
  text.add_number(
      static_cast<std::uint64_t>(static_cast<char*>(address) - static_cast<char*>(found.dli_fbase)),
      16);
  if (found.dli_sname != nullptr) (text << " (").add_name(found.dli_sname) << ")";
}

bool is_of_program(void* address) {
  Dl_info own{}, found{};
  return ::dladdr(reinterpret_cast<void*>(&is_of_program), &own) != 0 &&
         ::dladdr(address, &found) != 0 && own.dli_fbase == found.dli_fbase;
}

/// The place of the crash, and its callers.
void add_places(Text& text, void* at, const std::array<void*, max_frames>& frames, int count) {
  if (at != nullptr) add_place(text << ", at ", at);
  if (at != nullptr && is_of_program(at)) return;
  // The handler's own frames come first.
  bool is_below_handler = false;
  for (int frame = 0; frame < count; ++frame) {
    void* const address = frames[static_cast<std::size_t>(frame)];
    const bool is_own = is_of_program(address);
    if (is_own && is_below_handler) return add_place(text << ", called from ", address);
    is_below_handler |= !is_own;
  }
}

void write_exit_status(const Text& reason) {
  if (!has_path) return;
  const int file =
      ::open(exit_status_path.data(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return;
  Text text;
  text << "{\n  \"exit_code\": ";
  text.add_number(static_cast<std::uint64_t>(ExitCode::internal));
  text << ",\n  \"reason\": \"" << reason.view() << "\",\n  \"finished_at\": \"";
  add_time(text);
  text << "\"\n}\n";
  write_whole(file, text.view());
  ::fsync(file);
}

/// Whoever had the signal before has it again.
void hand_on(int number, const siginfo_t& info) {
  for (std::size_t each = 0; each < watched.size(); ++each)
    if (watched[each].number == number) ::sigaction(number, &old_actions[each], nullptr);
  // A fault comes again as soon as the handler is left.
  if (info.si_code <= 0) ::raise(number);
}

bool is_own_crash(int number, const siginfo_t& info) {
  if (number == SIGABRT) return info.si_code == SI_TKILL && info.si_pid == ::getpid();
  return info.si_code > 0;
}

bool is_of_experiment() {
  return part_of_thread != nullptr ? experiments_of_thread > 0 : num_experiments > 0;
}

void handle(int number, siginfo_t* info, void* context) {
  if (!is_own_crash(number, *info) || !answers_for_job || is_of_experiment())
    return hand_on(number, *info);
  // Two threads may crash at once: the first one says it.
  while (is_ending.exchange(true)) ::pause();
  std::array<void*, max_frames> frames{};
  const int count = ::backtrace(frames.data(), max_frames);
  Text reason;
  reason << "internal error: ";
  for (const Watched& one : watched)
    if (one.number == number) reason << one.name;
  reason << " in " << (part_of_thread != nullptr ? part_of_thread : "a thread of a library");
  add_places(reason, number == SIGABRT ? nullptr : interrupted_at(context), frames, count);
  write_whole(STDERR_FILENO, "dstune: error: ");
  write_whole(STDERR_FILENO, reason.view());
  write_whole(STDERR_FILENO, "\n");
  write_exit_status(reason);
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  if (const auto note = last_note.load()) note(static_cast<int>(ExitCode::internal));
  ::_exit(static_cast<int>(ExitCode::internal));
}

/// A thread whose own stack is used up, or elsewhere, still has one for the handler.
class HandlerStack {
 public:
  HandlerStack() : memory_(std::make_unique<char[]>(stack_bytes)) {
    stack_t stack{};
    stack.ss_sp = memory_.get();
    stack.ss_size = stack_bytes;
    ::sigaltstack(&stack, nullptr);
  }
  ~HandlerStack() {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
  }
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace

void watch() {
  // The first call loads a library.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  for (std::size_t each = 0; each < watched.size(); ++each) {
    struct sigaction old {};
    if (::sigaction(watched[each].number, &action, &old) != 0) continue;
    const bool is_ours = (old.sa_flags & SA_SIGINFO) != 0 && old.sa_sigaction == handle;
    if (!is_ours) old_actions[each] = old;
  }
}

void answer_for_job(bool answers) {
  answers_for_job = answers;
}

void name_thread(const char* part) {
  thread_local HandlerStack stack;
  part_of_thread = part;
}

void set_exit_status_path(const std::string& path) {
  if (path.size() >= exit_status_path.size()) return;
  std::memcpy(exit_status_path.data(), path.c_str(), path.size() + 1);
  has_path = true;
}

void set_last_note(void (*note)(int exit_code)) {
  last_note = note;
}

ExperimentScope::ExperimentScope() {
  ++num_experiments;
  ++experiments_of_thread;
}

ExperimentScope::~ExperimentScope() {
  --num_experiments;
  --experiments_of_thread;
}

}  // namespace dstune::crash
