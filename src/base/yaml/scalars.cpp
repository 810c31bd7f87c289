#include "yaml/scalars.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "dstune/base/text.hpp"

namespace dstune::yaml {

namespace {

constexpr std::string_view core_tag = "tag:yaml.org,2002:";

/// The word in small, capital or first-capital letters, as YAML has its words.
bool is_word(const std::string& text, std::string_view small) {
  if (lower_case(text) != small) return false;
  const auto is_small = [](unsigned char letter) { return std::islower(letter) != 0; };
  const auto is_large = [](unsigned char letter) { return std::isupper(letter) != 0; };
  return std::all_of(text.begin() + 1, text.end(), is_small) ||
         std::all_of(text.begin(), text.end(), is_large);
}

bool is_null(const std::string& word) {
  return word.empty() || word == "~" || is_word(word, "null");
}

std::optional<bool> boolean(const std::string& word) {
  for (const std::string_view yes : {"true", "yes", "on"})
    if (is_word(word, yes)) return true;
  for (const std::string_view no : {"false", "no", "off"})
    if (is_word(word, no)) return false;
  return std::nullopt;
}

bool is_digit(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

/// Digits of a base, with underscores behind the first one.
std::optional<json::Value> unsigned_number(std::string_view digits, int base, bool is_negative) {
  if (digits.empty() || digits.front() == '_') return std::nullopt;
  const std::string text = (is_negative ? "-" : "") + without_underscores(digits);
  const char* const end = text.data() + text.size();
  if (is_negative) {
    std::int64_t number = 0;
    const auto [at, error] = std::from_chars(text.data(), end, number, base);
    if (error == std::errc() && at == end) return number;
    return std::nullopt;
  }
  std::uint64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), end, number, base);
  if (error != std::errc() || at != end) return std::nullopt;
  if (std::in_range<std::int64_t>(number)) return static_cast<std::int64_t>(number);
  return number;
}

std::optional<json::Value> integer(std::string_view word) {
  const bool is_negative = word.starts_with('-');
  if (is_negative || word.starts_with('+')) word.remove_prefix(1);
  if (word.starts_with("0x")) return unsigned_number(word.substr(2), 16, is_negative);
  if (word.starts_with("0b")) return unsigned_number(word.substr(2), 2, is_negative);
  const bool is_octal = word.size() > 1 && word.front() == '0';
  return unsigned_number(word, is_octal ? 8 : 10, is_negative);
}

/// "1.", "1.5", ".5", "1e-4", "1.5E+3": with a point or an exponent, and a digit in front of it.
/// A number that no double holds is a text.
std::optional<json::Value> real(std::string_view word) {
  const std::string text = without_underscores(word);
  std::string_view rest = text;
  const bool is_signed = rest.starts_with('-') || rest.starts_with('+');
  if (is_signed) rest.remove_prefix(1);
  const auto skip_digits = [&rest] {
    std::size_t count = 0;
    while (count < rest.size() && is_digit(rest[count])) ++count;
    rest.remove_prefix(count);
    return count;
  };
  std::size_t digits = skip_digits();
  bool is_real = false;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    digits += skip_digits();
    is_real = true;
  }
  if (digits == 0 || word.front() == '_') return std::nullopt;
  if (rest.starts_with('e') || rest.starts_with('E')) {
    rest.remove_prefix(1);
    if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
    if (skip_digits() == 0) return std::nullopt;
    is_real = true;
  }
  if (!is_real || !rest.empty()) return std::nullopt;
  double number = 0;
  const char* const begin = text.data() + (text.front() == '+' ? 1 : 0);
  const auto [at, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || at != text.data() + text.size()) return std::nullopt;
  return number;
}

/// An integer that 64 bits do not hold is a real one, as in JSON.
std::optional<json::Value> long_integer(const std::string& word) {
  const std::string text = without_underscores(word);
  const std::size_t first = text.find_first_not_of("+-");
  if (first > 1 || first == text.npos || text[first] == '0' || !is_digit(word[first]) ||
      !std::all_of(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(), is_digit))
    return std::nullopt;
  return real(text + ".");
}

std::optional<json::Value> number(const std::string& word) {
  if (word.empty()) return std::nullopt;
  if (auto found = integer(word)) return found;
  if (auto found = real(word)) return found;
  return long_integer(word);
}

}  // namespace

json::Value plain_value(const std::string& word) {
  if (is_null(word)) return nullptr;
  if (const auto found = boolean(word)) return *found;
  if (auto found = number(word)) return *std::move(found);
  return word;
}

std::optional<json::Value> tagged_value(const std::string& tag, const std::string& word) {
  if (tag.empty() || tag == "?") return plain_value(word);
  if (tag == "!") return word;
  if (!tag.starts_with(core_tag)) return std::nullopt;
  const std::string name = tag.substr(core_tag.size());
  if (name == "str") return word;
  json::Value value = plain_value(word);
  if (name == "null" && value.is_null()) return value;
  if (name == "bool" && value.is_boolean()) return value;
  if (name == "int" && value.is_number_integer()) return value;
  if (name == "float" && value.is_number()) return value.get<double>();
  return std::nullopt;
}

}  // namespace dstune::yaml
