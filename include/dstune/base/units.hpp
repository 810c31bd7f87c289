#pragma once
/// Quantities as people write and read them. Parsers return nothing for what they can not read.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dstune {

/// "64GiB", "16GB" (powers of 1000), "512 MiB", "64G" (as GiB), "1024" (bytes); any case.
std::optional<std::int64_t> parse_bytes(std::string_view text);
/// "90", "90s", "10m", "1.5h", "1h30m", "2d", "500 ms", and Slurm's "1:30:00", "90:00" (minutes and
/// seconds), "2-00:00:00" (days): seconds.
std::optional<double> parse_duration_s(std::string_view text);
/// "1.50 GiB": three significant digits, binary units.
std::string format_bytes(std::int64_t bytes);
/// "12.3 ms", "4.56 s", from a minute on "1:02:03" (hours, minutes, seconds).
std::string format_duration(double seconds);
/// As printf's %g with six digits.
std::string format_number(double value);
/// UTC, "2026-01-02T03:04:05.678901Z".
std::string format_time(std::chrono::system_clock::time_point time);
std::optional<std::chrono::system_clock::time_point> parse_time(std::string_view text);

}  // namespace dstune
