#include "commands/shell_words.hpp"

#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "dstune/report/launch_line.hpp"

namespace dstune {

namespace {

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

/// How many characters of an operator that ends a simple command start here. `&` next to a `>` or
/// `<` belongs to a redirection.
std::size_t control_length(std::string_view rest, char before) {
  if (rest[0] == '\n' || rest[0] == ';') return 1;
  if (rest[0] == '|') return rest.substr(0, 2) == "||" || rest.substr(0, 2) == "|&" ? 2 : 1;
  if (rest[0] != '&' || before == '>' || before == '<') return 0;
  if (rest.substr(0, 2) == "&>") return 0;
  return rest.substr(0, 2) == "&&" ? 2 : 1;
}

ShellPiece read_word(std::string_view rest, char before) {
  ShellPiece word{ShellPiece::Kind::word, "", ""};
  Quote quote = Quote::none;
  std::size_t at = 0;
  while (at < rest.size()) {
    const std::string_view here = rest.substr(at);
    if (quote == Quote::none && (space_length(here) > 0 || control_length(here, before) > 0)) break;
    before = here[0];
    if (is_backslash_escape(here, quote)) {
      if (here[1] != '\n') word.value += here[1];
      at += 2;
      before = ' ';
      continue;
    }
    if (!turn_quote(here[0], quote)) word.value += here[0];
    ++at;
  }
  word.raw = rest.substr(0, at);
  return word;
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

}  // namespace

std::vector<ShellPiece> split_shell(const std::string& command) {
  std::vector<ShellPiece> pieces;
  const std::string_view text = command;
  for (std::size_t at = 0; at < text.size(); at += pieces.back().raw.size()) {
    const std::string_view rest = text.substr(at);
    const char before = at > 0 ? text[at - 1] : ' ';
    if (const std::size_t length = space_length(rest); length > 0)
      pieces.push_back({ShellPiece::Kind::space, std::string(rest.substr(0, length)), ""});
    else if (const std::size_t operator_length = control_length(rest, before); operator_length > 0)
      pieces.push_back(
          {ShellPiece::Kind::control, std::string(rest.substr(0, operator_length)), ""});
    else
      pieces.push_back(read_word(rest, before));
  }
  return pieces;
}

std::string replace_variable(const std::string& command, const std::string& name,
                             const std::string& value, bool& found) {
  std::string out;
  const std::string_view text = command;
  Quote quote = Quote::none;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    if (is_backslash_escape(rest, quote)) {
      out += rest.substr(0, 2);
      at += 2;
    } else if (const std::size_t length = variable_length(rest, name); length > 0) {
      out += quoted_for(value, quote);
      at += length;
      found = true;
    } else {
      turn_quote(rest[0], quote);
      out += rest[0];
      ++at;
    }
  }
  return out;
}

}  // namespace dstune
