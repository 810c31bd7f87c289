#pragma once
/// A shell command cut into words that can be exchanged while the rest stays as it was. Local.

#include <cstddef>
#include <string>
#include <vector>

namespace dstune {

/// A piece of a command: `raw` as written. Joining all raw texts gives the command again.
struct ShellPiece {
  enum class Kind {
    space,        ///< blanks, and line breaks behind a backslash
    word,         ///< with its quotes and substitutions
    redirection,  ///< operator and target: "2>&1", "> log"
    comment,      ///< from a # to the end of the line
    control,      ///< what ends a simple command: ; | & ( ) <<, and line breaks
  };
  Kind kind;
  std::string raw;
  std::string value;  ///< a word's text without quotes and escapes; substitutions as written
  /// A word that is one unquoted substitution: it may become any number of words.
  bool is_expanded = false;
  bool is_closed = true;  ///< its quotations and substitutions end in it
};

std::vector<ShellPiece> split_shell(const std::string& command);

/// Replaces `$name` and `${name}` in words and redirections, not in comments; `value` is quoted as
/// the place needs it: bare, in double or in single quotes. The places in `pieces` where there was
/// one, ascending.
std::vector<std::size_t> replace_variable(std::vector<ShellPiece>& pieces, const std::string& name,
                                          const std::string& value);

}  // namespace dstune
