#include "dstune/instrument/engine/channel.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "dstune/base/text.hpp"

namespace dstune::engine {
namespace {

/// Between looks at the deadline and at what may abort.
constexpr std::chrono::milliseconds look_interval{20};
/// Python may be about to block again after one socket ended: it is told more than once.
constexpr std::chrono::milliseconds interrupt_interval{500};

constexpr std::array kinds{enum_text(ErrorKind::exception, "exception"),
                           enum_text(ErrorKind::out_of_memory, "out_of_memory"),
                           enum_text(ErrorKind::refused, "refused"),
                           enum_text(ErrorKind::not_rerunnable, "not_rerunnable"),
                           enum_text(ErrorKind::interrupted, "interrupted")};
constexpr EnumTexts kind_texts{kinds};

// Never destroyed.
Channel* open_channel = nullptr;

/// The inode of an open descriptor: numbers are used again, inodes of sockets are not.
std::optional<std::uint64_t> inode_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return status.st_ino;
}

std::string text_in(const json::Value& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

[[noreturn]] void throw_error(const json::Value& error) {
  const auto kind = from_text<ErrorKind>(text_in(error, "kind"));
  const std::string message = text_in(error, "message");
  throw PythonError(kind.value_or(ErrorKind::exception),
                    message.empty() ? "Python failed and did not say why" : message,
                    text_in(error, "traceback"), text_in(error, "output"));
}

}  // namespace

const EnumTexts& texts_of(ErrorKind) {
  return kind_texts;
}

Channel* Channel::current() {
  return open_channel;
}

Channel& Channel::open() {
  require(open_channel == nullptr, "a process has one channel");
  open_channel = new Channel;
  return *open_channel;
}

json::Value Channel::call(const json::Value& command, const Waiter& waiter,
                          std::chrono::duration<double> drain) {
  const std::string name = text_in(command, "command");
  {
    const std::lock_guard lock(mutex_);
    if (is_stuck_)
      throw PythonStuck(CollectiveError::Cause::aborted,
                        "Python has not come back from an earlier command");
    progress_.clear();
    reply_.reset();
    command_ = command.dump(-1, ' ', true, json::Value::error_handler_t::replace);
  }
  changed_.notify_all();
  const std::string what = "Python in \"" + name + "\"";
  try {
    while (!has_reply()) waiter.check(what.c_str());
    return take_reply(name);
  } catch (const CollectiveError& ended) {
    const auto until =
        Waiter::Clock::now() + std::chrono::duration_cast<Waiter::Clock::duration>(drain);
    auto next_interrupt = Waiter::Clock::now();
    while (!has_reply()) {
      const auto now = Waiter::Clock::now();
      if (now >= until) {
        const std::lock_guard lock(mutex_);
        is_stuck_ = true;
        throw PythonStuck(ended.why(), fmt::format("{} has not come back {} after it was to end",
                                                   what, format_duration(drain.count())));
      }
      if (now < next_interrupt) continue;
      interrupt();
      next_interrupt = now + interrupt_interval;
    }
    const std::lock_guard lock(mutex_);
    interrupts_ = 0;
    keep_error(json::Value::parse(*reply_, nullptr, /*allow_exceptions=*/false));
    throw;
  }
}

/// Waits a little for it.
bool Channel::has_reply() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, look_interval, [this] { return reply_.has_value(); });
}

json::Value Channel::take_reply(const std::string& name) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = *std::exchange(reply_, std::nullopt);
  }
  const json::Document document = json::Document::parse(text, "the reply to \"" + name + "\"");
  const json::Value& reply = document.root();
  if (!reply.is_object()) throw Error(document.file() + " is no JSON object");
  const auto ok = reply.find("ok");
  if (ok != reply.end() && *ok == true) return reply;
  keep_error(reply);
  throw_error(error_.is_object() ? error_ : json::Value::object());
}

void Channel::keep_error(const json::Value& reply) {
  error_ = reply.is_object() ? reply.value("error", json::Value()) : json::Value();
}

json::Value Channel::take_error() {
  return std::exchange(error_, nullptr);
}

void Channel::interrupt() {
  const std::lock_guard lock(mutex_);
  // A collective that waits for peers ends at once; descriptors stay Python's to close.
  // A number that it has closed may be another socket's by now, MPI's for instance.
  for (const auto& [descriptor, inode] : sockets_)
    if (inode_of(descriptor) == inode) ::shutdown(descriptor, SHUT_RDWR);
  interrupts_ = 1;
  changed_.notify_all();
}

bool Channel::is_stuck() const {
  const std::lock_guard lock(mutex_);
  return is_stuck_;
}

std::string Channel::take_progress() {
  const std::lock_guard lock(mutex_);
  return std::exchange(progress_, {});
}

void Channel::close(int exit_code) {
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    exit_code_ = exit_code;
  }
  changed_.notify_all();
}

bool Channel::wait_closed(std::chrono::duration<double> timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return has_heard_close_; });
}

const char* Channel::exchange(const char* reply) {
  std::unique_lock lock(mutex_);
  if (reply != nullptr) {
    reply_ = reply;
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return command_.has_value() || is_closed_; });
  if (!command_) {
    has_heard_close_ = true;
    changed_.notify_all();
    return nullptr;
  }
  interrupts_ = 0;
  taken_ = *std::exchange(command_, std::nullopt);
  return taken_.c_str();
}

int Channel::wait_interrupt() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return interrupts_ > 0 || is_closed_; });
  if (interrupts_ == 0) return 0;
  interrupts_ = 0;
  return 1;
}

void Channel::note_sockets(std::span<const int> sockets) {
  const std::lock_guard lock(mutex_);
  sockets_.clear();
  for (const int descriptor : sockets)
    if (const auto inode = inode_of(descriptor)) sockets_.push_back({descriptor, *inode});
}

void Channel::note_progress(const char* text) {
  const std::lock_guard lock(mutex_);
  progress_ = text == nullptr ? "" : text;
}

int Channel::exit_code() const {
  const std::lock_guard lock(mutex_);
  return exit_code_;
}

}  // namespace dstune::engine
