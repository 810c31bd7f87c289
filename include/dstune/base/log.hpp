#pragma once
/// Messages to stderr, from rank 0 alone (other ranks set the level to off at start). Results go to
/// stdout and never through here.

#include <string>

namespace dstune::log {

enum class Level { info, warning, error, off };

void set_level(Level level);
/// Colour of the level's word: as said, or (automatic) where stderr is a terminal.
void set_color(bool on);

void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

}  // namespace dstune::log
