#include <fmt/format.h>

#include "dstune/base/units.hpp"
#include "text_cursor.hpp"

namespace dstune {

namespace {

using Clock = std::chrono::system_clock;

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

}  // namespace dstune
