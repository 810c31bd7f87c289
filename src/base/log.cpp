#include "dstune/base/log.hpp"

#include <memory>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace dstune::log {

namespace {

using Sink = spdlog::sinks::stderr_color_sink_mt;

struct Output {
  std::shared_ptr<Sink> sink = std::make_shared<Sink>();
  spdlog::logger logger{"dstune", sink};

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

spdlog::level::level_enum native(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

void write(Level level, const std::string& message) {
  output().logger.log(native(level), spdlog::string_view_t(message));
}

}  // namespace

void set_level(Level level) {
  output().logger.set_level(native(level));
}

Level level() {
  for (Level each : {Level::debug, Level::info, Level::warning, Level::error}) {
    if (output().logger.level() == native(each)) return each;
  }
  return Level::off;
}

void set_color(bool on) {
  output().sink->set_color_mode(on ? spdlog::color_mode::always : spdlog::color_mode::never);
}

void debug(const std::string& message) {
  write(Level::debug, message);
}
void info(const std::string& message) {
  write(Level::info, message);
}
void warning(const std::string& message) {
  write(Level::warning, message);
}
void error(const std::string& message) {
  write(Level::error, message);
}

}  // namespace dstune::log
