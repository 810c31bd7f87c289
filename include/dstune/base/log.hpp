#pragma once
/// Messages to stderr, from rank 0 alone (other ranks set the level to off at start). Results go to
/// stdout and never through here. A message is one line: control characters in it are escaped.

#include <functional>
#include <string>

namespace dstune::log {

/// debug: what --verbose adds, to look for the cause of something.
enum class Level { debug, info, warning, error, off };

void set_level(Level level);
/// Colour of the level's word: as said, or (automatic) where stderr is a terminal.
void set_color(bool on);

/// Writes one message, by calling what it is given once.
using Frame = std::function<void(const std::function<void()>& write)>;
/// A thread that has drawn on the terminal clears that before a message. From here on each message
/// is written inside of the frame, by the thread that has it. Empty: none.
void set_frame(Frame frame);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
void error(const std::string& message);

}  // namespace dstune::log
