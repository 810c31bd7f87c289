#include "dstune/base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "dstune/base/error.hpp"

namespace dstune {

namespace {

using Clock = std::chrono::system_clock;

/// Reads a short text from its start, piece by piece.
class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] std::string_view rest() const { return rest_; }

  bool skip(char expected) {
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }

  /// Exactly `count` digits, or with 0 one to fifteen of them.
  std::optional<std::int64_t> digits(std::size_t count = 0) {
    const std::string_view run = take(&is_digit);
    if (run.empty() || run.size() > 15 || (count != 0 && run.size() != count)) return std::nullopt;
    std::int64_t value = 0;
    for (char digit : run) value = value * 10 + (digit - '0');
    return value;
  }

  /// "12" or "1.5": digits on both sides of the point, no sign, no exponent.
  std::optional<std::string_view> decimal() {
    const std::string_view whole = rest_;
    const std::string_view before = take(&is_digit);
    if (before.empty()) return std::nullopt;
    if (!skip('.')) return before;
    const std::string_view after = take(&is_digit);
    if (after.empty()) return std::nullopt;
    return whole.substr(0, before.size() + 1 + after.size());
  }

  /// A run of lower-case letters, perhaps empty.
  std::string_view word() { return take(&is_letter); }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

  std::string_view take(bool (*belongs)(char)) {
    std::size_t length = 0;
    while (length < rest_.size() && belongs(rest_[length])) ++length;
    const std::string_view run = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return run;
  }

  std::string_view rest_;
};

constexpr std::array<std::string_view, 7> binary_units = {"B",   "KiB", "MiB", "GiB",
                                                          "TiB", "PiB", "EiB"};

/// Bytes in one of a unit; nothing for a word that is no unit.
std::optional<double> unit_bytes(const std::string& unit) {
  if (unit.empty() || unit == "b") return 1;
  const std::size_t power = std::string_view("kmgtpe").find(unit.front());
  if (power == std::string_view::npos) return std::nullopt;
  const std::string rest = unit.substr(1);
  const int exponent = static_cast<int>(power) + 1;
  if (rest.empty() || rest == "ib") return std::pow(1024.0, exponent);
  if (rest == "b") return std::pow(1000.0, exponent);
  return std::nullopt;
}

/// Three significant digits, never in exponent form.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

/// "1:30:00", "2-00:00:00", "90:00" (minutes and seconds, as Slurm has it), "2-12" (days, hours).
std::optional<double> parse_clock(std::string_view text) {
  TextCursor cursor(text);
  std::optional<std::int64_t> first = cursor.digits();
  if (!first) return std::nullopt;
  double days = 0;
  const bool has_days = cursor.skip('-');
  if (has_days) {
    days = static_cast<double>(*first);
    first = cursor.digits(2);
    if (!first || *first > 23) return std::nullopt;
  }
  std::array<double, 3> fields = {static_cast<double>(*first), 0, 0};
  std::size_t count = 1;
  while (count < 3 && cursor.skip(':')) {
    const std::optional<std::int64_t> field = cursor.digits(2);
    if (!field || *field > 59) return std::nullopt;
    fields[count++] = static_cast<double>(*field);
  }
  if (!cursor.at_end()) return std::nullopt;
  if (count == 2 && !has_days) return fields[0] * 60 + fields[1];
  return days * 86400 + fields[0] * 3600 + fields[1] * 60 + fields[2];
}

/// Escapes control characters, but for those in `kept`.
std::string without_controls(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, length));
    const auto first = static_cast<unsigned char>(text.front());
    const auto last = static_cast<unsigned char>(character.back());
    const bool is_c1 = length == 2 && first == 0xC2 && last < 0xA0;
    const bool is_shown = length > 0 && first >= 0x20 && first != 0x7F && !is_c1;
    if (is_shown || kept.find(text.front()) != kept.npos)
      out += character;
    else if (first == '\n')
      out += "\\n";
    else
      out += fmt::format("\\x{:02X}", last);
    text.remove_prefix(character.size());
  }
  return out;
}

/// Digits after the point as microseconds: "5" is 500000. One to six of them.
std::optional<std::int64_t> fraction_us(TextCursor& cursor) {
  const std::size_t before = cursor.rest().size();
  std::optional<std::int64_t> value = cursor.digits();
  const std::size_t count = before - cursor.rest().size();
  if (!value || count > 6) return std::nullopt;
  for (std::size_t i = count; i < 6; ++i) *value *= 10;
  return value;
}

}  // namespace

std::string_view trimmed(std::string_view text, std::string_view letters) {
  const std::size_t first = text.find_first_not_of(letters);
  if (first == text.npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(letters) - first + 1);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> lines_of(std::string_view text) {
  if (text.empty()) return {};
  if (text.ends_with('\n')) text.remove_suffix(1);
  return split(text, '\n');
}

std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead == 0) return 0;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  const std::string_view rest = text.substr(1, length - 1);
  if (!std::all_of(rest.begin(), rest.end(),
                   [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }))
    return 0;
  // Longer than need be, halves of surrogate pairs, beyond U+10FFFF.
  const auto second = static_cast<unsigned char>(text[1]);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
  if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
  return length;
}

std::string printable(std::string_view text) {
  return without_controls(text, "");
}

std::string printable_lines(std::string_view text) {
  return without_controls(text, "\n");
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  TextCursor cursor(text);
  const std::optional<std::string_view> number = cursor.decimal();
  if (!number) return std::nullopt;
  if (cursor.skip(' ') && cursor.at_end()) return std::nullopt;
  const std::optional<double> unit = unit_bytes(lower_case(cursor.rest()));
  if (!unit) return std::nullopt;
  if (number->find('.') == std::string_view::npos) {
    std::int64_t count = 0;
    if (std::from_chars(number->data(), number->data() + number->size(), count).ec != std::errc())
      return std::nullopt;
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(count, static_cast<std::int64_t>(*unit), &bytes))
      return std::nullopt;
    return bytes;
  }
  const double bytes = std::strtod(std::string(*number).c_str(), nullptr) * *unit;
  // A part of a byte is no quantity; a part of a larger unit is rounded down to whole bytes.
  if (*unit == 1 || bytes >= 0x1p63) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::optional<double> parse_duration_s(std::string_view text) {
  if (text.find_first_of(":-") != std::string_view::npos) return parse_clock(text);
  constexpr std::array<std::string_view, 5> names = {"d", "h", "m", "s", "ms"};
  constexpr std::array<double, 5> unit_s = {86400, 3600, 60, 1, 1e-3};
  TextCursor cursor(text);
  double seconds = 0;
  std::size_t next = 0;  // the largest unit that may still come: each once, in falling order
  do {
    const std::optional<std::string_view> number = cursor.decimal();
    if (!number) return std::nullopt;
    const double count = std::strtod(std::string(*number).c_str(), nullptr);
    if (next == 0 && cursor.at_end()) return count;
    cursor.skip(' ');
    const std::string_view word = cursor.word();
    while (next < names.size() && names[next] != word) ++next;
    if (next == names.size()) return std::nullopt;
    seconds += count * unit_s[next++];
    cursor.skip(' ');
  } while (!cursor.at_end());
  return seconds;
}

std::string format_bytes(std::int64_t bytes) {
  const double size = std::abs(static_cast<double>(bytes));
  const char* const sign = bytes < 0 ? "-" : "";
  if (size < 1024) return fmt::format("{}{:.0f} B", sign, size);
  double scaled = size;
  std::size_t unit = 0;
  while (scaled >= 1023.5 && unit + 1 < binary_units.size()) {
    scaled /= 1024;
    ++unit;
  }
  return fmt::format("{}{} {}", sign, three_digits(scaled), binary_units[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return format_number(seconds);
  if (seconds < 0) return fmt::format("-{}", format_duration(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " µs";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const std::int64_t whole = std::llround(std::min(seconds, 9e15));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_number(double value) {
  return fmt::format("{:.6g}", value);
}

std::string format_factor(double factor) {
  const bool is_large = std::abs(factor) >= 999.5 && std::isfinite(factor);
  return is_large ? fmt::format("{:.0f}", factor) : fmt::format("{:.3g}", factor);
}

std::string format_count(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string format_time(Clock::time_point time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::microseconds>(time - day));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

std::optional<Clock::time_point> parse_time(std::string_view text) {
  TextCursor cursor(text);
  constexpr std::string_view separators = "--T::";
  std::int64_t fields[6] = {};
  for (std::size_t i = 0; i < 6; ++i) {
    if (i > 0 && !cursor.skip(separators[i - 1])) return std::nullopt;
    const std::optional<std::int64_t> field = cursor.digits(i == 0 ? 4 : 2);
    if (!field) return std::nullopt;
    fields[i] = *field;
  }
  std::optional<std::int64_t> microseconds = 0;
  if (cursor.skip('.')) microseconds = fraction_us(cursor);
  if (!microseconds || !cursor.skip('Z') || !cursor.at_end()) return std::nullopt;

  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(fields[0])),
                                         std::chrono::month(static_cast<unsigned>(fields[1])),
                                         std::chrono::day(static_cast<unsigned>(fields[2])));
  if (!date.ok() || fields[3] > 23 || fields[4] > 59 || fields[5] > 59) return std::nullopt;
  // Nanoseconds since 1970 in 64 bits reach from 1677 to 2262.
  if (fields[0] < 1678 || fields[0] > 2261) return std::nullopt;
  return std::chrono::sys_days(date) + std::chrono::hours(fields[3]) +
         std::chrono::minutes(fields[4]) + std::chrono::seconds(fields[5]) +
         std::chrono::microseconds(*microseconds);
}

std::string_view find_text(const EnumTexts& texts, int value) {
  for (const EnumText& each : texts.all)
    if (each.value == value) return each.text;
  throw LogicError("an enumerator without a name");
}

std::optional<int> find_value(const EnumTexts& texts, std::string_view text) {
  for (const EnumText& each : texts.all)
    if (each.text == text) return each.value;
  return std::nullopt;
}

}  // namespace dstune
