#pragma once
/// A shell command cut into words that can be exchanged while the rest stays as it was. Local.

#include <cstddef>
#include <string>
#include <vector>

namespace dstune {

/// A piece of a command: `raw` as written. Joining all raw texts gives the command again.
struct ShellPiece {
  enum class Kind {
    space,    ///< blanks, and line breaks behind a backslash
    word,     ///< with its quotes
    control,  ///< what ends a simple command: ; | & and line breaks
  };
  Kind kind;
  std::string raw;
  std::string value;  ///< a word's text without quotes and escapes
};

std::vector<ShellPiece> split_shell(const std::string& command);

/// Replaces `$name` and `${name}` in a command; `value` is quoted as the place needs it: bare, in
/// double or in single quotes. Says in `found` whether there was one.
std::string replace_variable(const std::string& command, const std::string& name,
                             const std::string& value, bool& found);

}  // namespace dstune
