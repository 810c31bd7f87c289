#include "json/hjson_scanner.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace dstune::json {

namespace {

constexpr std::string_view whitespace = " \t\r\n";
constexpr std::string_view line_ends = "\r\n";

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20;
}

/// Tells whether all of `word` is a JSON number.
bool is_number(std::string_view word) {
  const auto skip_one_of = [&word](std::string_view letters) {
    const bool is_there = !word.empty() && letters.find(word.front()) != letters.npos;
    if (is_there) word.remove_prefix(1);
    return is_there;
  };
  const auto skip_digits = [&word] {
    const std::size_t count = std::min(word.find_first_not_of("0123456789"), word.size());
    word.remove_prefix(count);
    return count;
  };
  skip_one_of("-");
  const bool begins_with_zero = word.starts_with('0');
  const std::size_t whole = skip_digits();
  if (whole == 0 || (whole > 1 && begins_with_zero)) return false;
  if (skip_one_of(".") && skip_digits() == 0) return false;
  if (skip_one_of("eE")) {
    skip_one_of("+-");
    if (skip_digits() == 0) return false;
  }
  return word.empty();
}

std::string_view without_spaces_at_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(whitespace) + 1);
}

void refuse_control_characters(std::string_view text, std::size_t offset) {
  const auto* const found =
      std::find_if(text.begin(), text.end(), [](char c) { return is_control(c) && c != '\t'; });
  if (found == text.end()) return;
  throw HjsonFault{
      offset + static_cast<std::size_t>(found - text.begin()),
      fmt::format("the control character 0x{:02X} stands in a text: write it as "
                  "\\u{:04X} in double quotes, or remove it",
                  static_cast<unsigned char>(*found), static_cast<unsigned char>(*found))};
}

[[noreturn]] void refuse_unfinished(std::string_view what, std::size_t end, int first_line,
                                    std::string_view hint) {
  throw HjsonFault{end, fmt::format("the file ends inside the {} that begins on line {}: {}", what,
                                    first_line, hint)};
}

}  // namespace

char HjsonScanner::next() {
  while (true) {
    at_ = std::min(text_.find_first_not_of(whitespace, at_), text_.size());
    if (at_end()) return '\0';
    if (!at("#") && !at("//") && !at("/*")) return text_[at_];
    skip_comment();
  }
}

void HjsonScanner::skip_comment() {
  if (!at("/*")) {
    at_ = end_of_line(at_);
    return;
  }
  const std::size_t end = text_.find("*/", at_ + 2);
  if (end == text_.npos) refuse_unfinished("comment", text_.size(), line(), "close it with */");
  at_ = end + 2;
}

bool HjsonScanner::skip(char expected) {
  if (at_end() || text_[at_] != expected) return false;
  ++at_;
  return true;
}

std::string HjsonScanner::key() {
  if (at("'''"))
    throw HjsonFault{at_, "a text in ''' can not be a key: write the key in double quotes"};
  if (at("\"") || at("'")) return quoted();
  const std::size_t begin = at_;
  at_ = std::min(text_.find_first_of("{}[],: \t\r\n", at_), text_.size());
  if (at_ == begin) {
    std::string_view hint = "";
    if (at(":")) hint = "; write \"\" for an empty key";
    if (at(",")) hint = "; remove it";
    throw HjsonFault{begin, fmt::format("expected a key but found {}{}", text_[begin], hint)};
  }
  const std::string_view name = text_.substr(begin, at_ - begin);
  refuse_control_characters(name, begin);
  return std::string(name);
}

std::string HjsonScanner::quoted() {
  const int first_line = line();
  const char quote = text_[at_++];
  std::string out;
  while (true) {
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != quote && text_[at_] != '\\' && !is_control(text_[at_])) ++at_;
    out += text_.substr(begin, at_ - begin);
    if (at_end())
      refuse_unfinished(
          "text", at_, first_line,
          quote == '"' ? "add the closing double quote" : "add the closing single quote");
    if (skip(quote)) return out;
    if (!skip('\\'))
      throw HjsonFault{at_,
                       "a line break or control character stands inside a text: close the text, "
                       "write \\n, or put texts of several lines in '''"};
    append_escaped(out);
  }
}

void HjsonScanner::append_escaped(std::string& out) {
  constexpr std::string_view letters = "\"'\\/bfnrt";
  constexpr std::string_view meanings = "\"'\\/\b\f\n\r\t";
  const std::size_t backslash = at_ - 1;
  if (skip('u')) {
    const unsigned point = four_hex_digits();
    const bool is_high = point >= 0xD800 && point < 0xDC00;
    if (is_high && at("\\u")) {
      at_ += 2;
      (void)four_hex_digits();
    }
    out += code_point(backslash);
    return;
  }
  const std::size_t which = at_end() ? letters.npos : letters.find(text_[at_]);
  if (which == letters.npos)
    throw HjsonFault{backslash,
                     "a backslash in a text is followed by a character that it can not escape: "
                     "write \\\\ for a backslash"};
  out += meanings[which];
  ++at_;
}

/// The text that is escaped from `begin` to here, in UTF-8.
std::string HjsonScanner::code_point(std::size_t begin) const {
  const std::string_view escaped = text_.substr(begin, at_ - begin);
  try {
    return Value::parse(fmt::format("\"{}\"", escaped)).get<std::string>();
  } catch (const Value::parse_error&) {
    throw HjsonFault{begin,
                     "half of a surrogate pair stands alone: write both halves as \\uXXXX\\uXXXX"};
  }
}

unsigned HjsonScanner::four_hex_digits() {
  const std::string_view digits = text_.substr(at_, 4);
  unsigned value = 0;
  const char* const begin = digits.data();
  const char* const end = std::from_chars(begin, begin + digits.size(), value, 16).ptr;
  at_ += static_cast<std::size_t>(end - begin);
  if (end != begin + 4)
    throw HjsonFault{std::min(at_, text_.size() - 1), "\\u needs four hexadecimal digits after it"};
  return value;
}

std::string HjsonScanner::multiline() {
  const int first_line = line();
  const std::size_t indent = characters_before(at_);
  at_ += 3;
  skip_spaces(text_.size());
  if (skip('\n')) skip_spaces(indent);
  std::string out;
  while (true) {
    const std::size_t end = std::min(text_.find_first_of("'\r\n", at_), text_.size());
    const std::string_view run = text_.substr(at_, end - at_);
    refuse_control_characters(run, at_);
    out += run;
    at_ = end;
    if (at_end()) refuse_unfinished("text", at_, first_line, "close it with '''");
    if (at("'''")) break;
    const char c = text_[at_++];
    if (c != '\r') out += c;
    if (c == '\n') skip_spaces(indent);
  }
  at_ += 3;
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

Value HjsonScanner::unquoted() {
  const std::size_t begin = at_;
  const std::size_t word_end = end_of_word();
  if (auto value = literal(without_spaces_at_end(text_.substr(begin, word_end - begin)))) {
    at_ = word_end;
    return std::move(*value);
  }
  at_ = end_of_line(word_end);
  const std::string_view all = without_spaces_at_end(text_.substr(begin, at_ - begin));
  refuse_control_characters(all, begin);
  const std::size_t last = all.find_last_not_of(" \t,");
  if (last != all.npos) ending_with_[all[last]] = begin;
  return std::string(all);
}

/// The value that `word` is, unless it is a text.
std::optional<Value> HjsonScanner::literal(std::string_view word) const {
  if (word == "true") return true;
  if (word == "false") return false;
  if (word == "null") return nullptr;
  if (!is_number(word)) return std::nullopt;
  // The number is read as the reader of JSON does, to the last bit.
  Value number = Value::parse(word.begin(), word.end(), nullptr, false);
  if (number.is_discarded()) throw HjsonOverflow{at_};
  return number;
}

std::size_t HjsonScanner::end_of_word() const {
  std::size_t end = at_;
  while (true) {
    end = text_.find_first_of(",}]#/\r\n", end);
    if (end == text_.npos) return text_.size();
    const std::string_view rest = text_.substr(end);
    if (text_[end] != '/' || rest.starts_with("//") || rest.starts_with("/*")) return end;
    ++end;
  }
}

std::size_t HjsonScanner::end_of_line(std::size_t from) const {
  return std::min(text_.find_first_of(line_ends, from), text_.size());
}

std::size_t HjsonScanner::characters_before(std::size_t offset) {
  const std::size_t start = places_->line_start(offset);
  // A line may hold many texts; to count it from its start for each would take quadratic time.
  if (counted_.offset < start || counted_.offset > offset) counted_ = {start, 0};
  const std::string_view more = text_.substr(counted_.offset, offset - counted_.offset);
  counted_.characters += static_cast<std::size_t>(
      std::count_if(more.begin(), more.end(), [](char c) { return !is_continuation(c); }));
  counted_.offset = offset;
  return counted_.characters;
}

void HjsonScanner::skip_spaces(std::size_t at_most) {
  for (; at_most > 0 && !at_end() && (at(" ") || at("\t") || at("\r")); --at_most) ++at_;
}

std::optional<int> HjsonScanner::line_of_text_ending_with(char bracket) const {
  const auto found = ending_with_.find(bracket);
  if (found == ending_with_.end()) return std::nullopt;
  return places_->line(found->second);
}

}  // namespace dstune::json
