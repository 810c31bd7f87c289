#pragma once
/// Messages to stderr, from rank 0 alone (other ranks set the level to off at start). Results go to
/// stdout and never through here. A message is one line: control characters in it are escaped.

#include <string>

namespace dstune::log {

/// debug: what --verbose adds for whoever looks for the cause of something.
enum class Level { debug, info, warning, error, off };

void set_level(Level level);
/// Colour of the level's word: as said, or (automatic) where stderr is a terminal.
void set_color(bool on);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

}  // namespace dstune::log
