#include "command/shell_words.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "dstune/core/launch_line.hpp"

namespace dstune {

namespace {

using Kind = ShellPiece::Kind;

enum class Quote { none, single_quotes, double_quotes };

bool is_backslash_escape(std::string_view rest, Quote quote) {
  if (rest.size() < 2 || rest[0] != '\\' || quote == Quote::single_quotes) return false;
  return quote == Quote::none || std::string_view("$`\"\\\n").find(rest[1]) != rest.npos;
}

/// Enters or leaves a quotation; false where the letter is an ordinary one.
bool turn_quote(char letter, Quote& quote) {
  if (letter == '\'' && quote != Quote::double_quotes)
    quote = quote == Quote::none ? Quote::single_quotes : Quote::none;
  else if (letter == '"' && quote != Quote::single_quotes)
    quote = quote == Quote::none ? Quote::double_quotes : Quote::none;
  else
    return false;
  return true;
}

bool is_blank(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\r';
}

/// How many characters of blanks start here.
std::size_t space_length(std::string_view rest) {
  std::size_t length = 0;
  while (length < rest.size()) {
    if (is_blank(rest[length]))
      ++length;
    else if (rest.substr(length, 2) == "\\\n")
      length += 2;
    else
      break;
  }
  return length;
}

bool is_process_substitution(std::string_view rest) {
  return rest.starts_with("<(") || rest.starts_with(">(");
}

/// How many characters of a redirection's operator start here, the number in front of it included.
std::size_t redirection_length(std::string_view rest) {
  if (is_process_substitution(rest)) return 0;
  if (rest.starts_with("&>>")) return 3;
  if (rest.starts_with("&>")) return 2;
  std::size_t digits = 0;
  while (digits < rest.size() && std::isdigit(static_cast<unsigned char>(rest[digits])) != 0)
    ++digits;
  rest.remove_prefix(digits);
  if (rest.starts_with("<<<")) return digits + 3;
  if (rest.starts_with("<<")) return 0;  // the text that follows is on lines of its own
  for (const std::string_view two : {">>", ">&", ">|", "<&", "<>"})
    if (rest.starts_with(two)) return digits + two.size();
  return rest.starts_with('<') || rest.starts_with('>') ? digits + 1 : 0;
}

/// How many characters of an operator that ends a simple command start here.
std::size_t control_length(std::string_view rest) {
  for (const std::string_view two : {"||", "|&", "&&", ";;", "<<"})
    if (rest.starts_with(two)) return two.size();
  return std::string_view("\n;|&()").find(rest[0]) != std::string_view::npos ? 1 : 0;
}

/// How many characters the substitution takes that starts here: `$(…)`, `${…}`, `<(…)`, or between
/// backticks; 0 where none starts. Nothing where it does not end. `around`: what it is quoted in.
std::optional<std::size_t> substitution_length(std::string_view rest, Quote around) {
  const bool is_braced = rest.starts_with("${");
  const bool is_backtick = rest.starts_with('`');
  const bool is_process = around == Quote::none && is_process_substitution(rest);
  const bool is_one = is_braced || is_backtick || is_process || rest.starts_with("$(");
  if (around == Quote::single_quotes || !is_one) return 0;
  const char open = is_braced ? '{' : '(';
  const char close = is_backtick ? '`' : is_braced ? '}' : ')';
  Quote quote = Quote::none;
  int depth = 1;
  for (std::size_t at = is_backtick ? 1 : 2; at < rest.size(); ++at) {
    if (is_backslash_escape(rest.substr(at), quote)) {
      ++at;
    } else if (is_backtick) {
      if (rest[at] == close) return at + 1;
    } else if (!turn_quote(rest[at], quote) && quote == Quote::none) {
      if (rest[at] == open) ++depth;
      if (rest[at] == close && --depth == 0) return at + 1;
    }
  }
  return std::nullopt;
}

bool ends_word(std::string_view rest) {
  if (is_process_substitution(rest)) return false;
  return space_length(rest) > 0 || control_length(rest) > 0 || rest[0] == '<' || rest[0] == '>';
}

/// Nothing but `$name`, `$(…)`, `${…}` or backticks.
bool is_one_substitution(std::string_view word) {
  if (word.size() < 2 || (word[0] != '$' && word[0] != '`')) return false;
  const std::optional<std::size_t> length = substitution_length(word, Quote::none);
  if (!length || *length > 0) return length == word.size();
  return std::all_of(word.begin() + 1, word.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '@' || letter == '*';
  });
}

ShellPiece read_word(std::string_view rest) {
  ShellPiece word{Kind::word, "", ""};
  Quote quote = Quote::none;
  std::size_t at = 0;
  while (at < rest.size()) {
    const std::string_view here = rest.substr(at);
    if (quote == Quote::none && ends_word(here)) break;
    if (is_backslash_escape(here, quote)) {
      if (here[1] != '\n') word.value += here[1];
      at += 2;
      continue;
    }
    const std::optional<std::size_t> length = substitution_length(here, quote);
    if (!length) word.is_closed = false;
    if (length && *length > 0) {
      word.value += here.substr(0, *length);
      at += *length;
      continue;
    }
    if (!turn_quote(here[0], quote)) word.value += here[0];
    ++at;
  }
  word.is_closed = word.is_closed && quote == Quote::none;
  word.raw = rest.substr(0, at);
  word.is_expanded = is_one_substitution(word.raw);
  return word;
}

/// Reads a redirection with its target.
ShellPiece read_redirection(std::string_view rest, std::size_t operator_length) {
  const std::size_t target = operator_length + space_length(rest.substr(operator_length));
  const ShellPiece word = read_word(rest.substr(target));
  return {.kind = Kind::redirection,
          .raw = std::string(rest.substr(0, target)) + word.raw,
          .value = "",
          .is_closed = word.is_closed && !word.raw.empty()};
}

/// `value` for the inside of double quotes.
std::string escaped(const std::string& value) {
  std::string out;
  for (const char letter : value) {
    if (std::string_view("$`\"\\").find(letter) != std::string_view::npos) out += '\\';
    out += letter;
  }
  return out;
}

std::string quoted_for(const std::string& value, Quote quote) {
  if (quote == Quote::double_quotes) return escaped(value);
  const std::string word = shell_quote(value);
  // Leaves the quotation, says the word, and takes the quotation up again.
  return quote == Quote::single_quotes ? fmt::format("'{}'", word) : word;
}

/// How many characters `$name` or `${name}` takes here, 0 where it is not here.
std::size_t variable_length(std::string_view rest, const std::string& name) {
  if (rest.starts_with(fmt::format("${{{}}}", name))) return name.size() + 3;
  if (!rest.starts_with(fmt::format("${}", name))) return 0;
  const std::size_t length = name.size() + 1;
  if (length < rest.size()) {
    const char next = rest[length];
    if (next == '_' || std::isalnum(static_cast<unsigned char>(next)) != 0) return 0;
  }
  return length;
}

/// The text with the variable replaced; nothing where it is not in it.
std::optional<std::string> replaced(std::string_view text, const std::string& name,
                                    const std::string& value) {
  std::string out;
  bool is_found = false;
  Quote quote = Quote::none;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (is_backslash_escape(rest, quote)) {
      out += rest.substr(0, 2);
      at += 2;
    } else if (const std::size_t length = variable_length(rest, name); length > 0) {
      out += quoted_for(value, quote);
      at += length;
      is_found = true;
    } else {
      turn_quote(rest[0], quote);
      out += rest[0];
      ++at;
    }
  }
  return is_found ? std::optional(out) : std::nullopt;
}

}  // namespace

std::vector<ShellPiece> split_shell(const std::string& command) {
  std::vector<ShellPiece> pieces;
  const std::string_view text = command;
  for (std::size_t at = 0; at < text.size(); at += pieces.back().raw.size()) {
    const std::string_view rest = text.substr(at);
    const auto add = [&](Kind kind, std::size_t length) {
      pieces.push_back({kind, std::string(rest.substr(0, length)), ""});
    };
    if (const std::size_t blanks = space_length(rest); blanks > 0)
      add(Kind::space, blanks);
    else if (const std::size_t length = redirection_length(rest); length > 0)
      pieces.push_back(read_redirection(rest, length));
    else if (rest[0] == '#')
      add(Kind::comment, std::min(rest.find('\n'), rest.size()));
    else if (const std::size_t letters = control_length(rest); letters > 0)
      add(Kind::control, letters);
    else
      pieces.push_back(read_word(rest));
  }
  return pieces;
}

std::vector<std::size_t> replace_variable(std::vector<ShellPiece>& pieces, const std::string& name,
                                          const std::string& value) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    ShellPiece& piece = pieces[i];
    if (piece.kind != Kind::word && piece.kind != Kind::redirection) continue;
    std::optional<std::string> raw = replaced(piece.raw, name, value);
    if (!raw) continue;
    piece.raw = std::move(*raw);
    if (piece.kind == Kind::word) piece.value = read_word(piece.raw).value;
    piece.is_expanded = false;
    places.push_back(i);
  }
  return places;
}

}  // namespace dstune
