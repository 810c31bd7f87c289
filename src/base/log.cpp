#include "dstune/base/log.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <utility>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include "dstune/base/text.hpp"

namespace dstune::log {

namespace {

using Sink = spdlog::sinks::stderr_color_sink_mt;

struct Output {
  std::shared_ptr<Sink> sink = std::make_shared<Sink>();
  spdlog::logger logger{"dstune", sink};
  std::mutex mutex;  ///< of the frame
  Frame frame;

  Output() {
    logger.set_pattern("dstune: %^%l%$: %v");
    logger.set_level(spdlog::level::info);
    logger.flush_on(spdlog::level::trace);
  }
};

/// Made at first use and never destroyed: destructors of other statics may still speak.
Output& output() {
  static auto* made = new Output;
  return *made;
}

void write(spdlog::level::level_enum level, const std::string& message) {
  Output& to = output();
  if (!to.logger.should_log(level)) return;
  // Names, paths and reasons come from whoever wrote the input.
  const auto write_it = [&] { to.logger.log(level, spdlog::string_view_t(printable(message))); };
  const std::lock_guard lock(to.mutex);
  if (to.frame)
    to.frame(write_it);
  else
    write_it();
}

}  // namespace

void set_level(Level level) {
  constexpr std::array levels{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                              spdlog::level::err, spdlog::level::off};
  output().logger.set_level(levels.at(static_cast<std::size_t>(level)));
}

void set_color(bool on) {
  output().sink->set_color_mode(on ? spdlog::color_mode::always : spdlog::color_mode::never);
}

void set_frame(Frame frame) {
  const std::lock_guard lock(output().mutex);
  output().frame = std::move(frame);
}

void debug(const std::string& message) {
  write(spdlog::level::debug, message);
}
void info(const std::string& message) {
  write(spdlog::level::info, message);
}
void warning(const std::string& message) {
  write(spdlog::level::warn, message);
}
void error(const std::string& message) {
  write(spdlog::level::err, message);
}

}  // namespace dstune::log
