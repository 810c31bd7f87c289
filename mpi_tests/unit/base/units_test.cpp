#include <limits>

#include <gtest/gtest.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

TEST(UnitsTest, ReadsBytes) {
  EXPECT_EQ(parse_bytes("1024"), 1024);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("7B"), 7);
  EXPECT_EQ(parse_bytes("64GiB"), std::int64_t{64} << 30);
  EXPECT_EQ(parse_bytes("16GB"), 16'000'000'000);
  EXPECT_EQ(parse_bytes("512 MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5kib"), 1536);
  EXPECT_EQ(parse_bytes("2G"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_bytes("7EiB"), std::int64_t{7} << 60);
}

TEST(UnitsTest, RefusesWhatIsNotAByteCount) {
  for (const char* text :
       {"", "GiB", "-1", "+1", "1e9", "1.5", "64 Gi", "64GiBs", "1 2", " 1", "1 ", "0x10", "8EiB",
        "9223372036854775808", "9.5EiB", "nan", "1.GiB", ".5GiB"})
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(parse_duration_s("90"), 90);
  EXPECT_EQ(parse_duration_s("90s"), 90);
  EXPECT_EQ(parse_duration_s("10m"), 600);
  EXPECT_EQ(parse_duration_s("1.5h"), 5400);
  EXPECT_EQ(parse_duration_s("1:30:00"), 5400);
  EXPECT_EQ(parse_duration_s("100:00:01"), 360001);
  EXPECT_EQ(parse_duration_s("2-00:00:00"), 172800);
  EXPECT_EQ(parse_duration_s("2-12"), 2 * 86400 + 12 * 3600);
  EXPECT_EQ(parse_duration_s("1-01:30"), 86400 + 5400);
  EXPECT_EQ(parse_duration_s("90:30"), 5430);
  EXPECT_EQ(parse_duration_s("1h30m"), 5400);
  EXPECT_EQ(parse_duration_s("1d 2h 3m 4s"), 86400 + 7200 + 180 + 4);
  EXPECT_EQ(parse_duration_s("500 ms"), 0.5);
}

TEST(UnitsTest, RefusesWhatIsNotADuration) {
  for (const char* text :
       {"",     "s",    "-5",   "1:2:3",  "1:60:00", "1:00:60", "1:00:00:00", "2-24:00:00",
        "1m1h", "1h1h", "1h30", "5 days", "1e3",     "inf",     "nan",        "10m, 5s",
        "1:",   ":30",  "1-",   "1:30s",  "1.5:00",  "5x"})
    EXPECT_EQ(parse_duration_s(text), std::nullopt) << text;
}

TEST(UnitsTest, WritesBytesInThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{64} << 30), "64.0 GiB");
  EXPECT_EQ(format_bytes((std::int64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::int64_t>::max()), "8.00 EiB");
}

TEST(UnitsTest, WritesDurations) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(25e-6), "25.0 µs");
  EXPECT_EQ(format_duration(0.0123), "12.3 ms");
  EXPECT_EQ(format_duration(0.99996), "1.00 s");
  EXPECT_EQ(format_duration(4.56), "4.56 s");
  EXPECT_EQ(format_duration(59.96), "0:01:00");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(-4.56), "-4.56 s");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "inf");
}

TEST(UnitsTest, DurationsAreReadAsWritten) {
  for (double seconds : {0.0, 0.001, 0.0123, 0.5, 4.56, 42.0, 60.0, 3723.0, 400000.0})
    EXPECT_DOUBLE_EQ(parse_duration_s(format_duration(seconds)).value(), seconds);
}

TEST(UnitsTest, WritesNumbersInSixDigits) {
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(1234567.0), "1.23457e+06");
}

TEST(UnitsTest, WritesTimes) {
  using namespace std::chrono;
  const auto time = sys_days(2026y / January / 2) + 3h + 4min + 5s + 678901us;
  EXPECT_EQ(format_time(time), "2026-01-02T03:04:05.678901Z");
  EXPECT_EQ(parse_time("2026-01-02T03:04:05.678901Z"), time);
  EXPECT_EQ(parse_time("2026-01-02T03:04:05Z"), time - 678901us);
  EXPECT_EQ(parse_time("2026-01-02T03:04:05.5Z"), time - 178901us);
  const auto before_epoch = sys_days(1969y / December / 31) + 23h + 59min + 59s + 1us;
  EXPECT_EQ(parse_time(format_time(before_epoch)), before_epoch);
}

TEST(UnitsTest, RefusesWhatIsNotATime) {
  for (const char* text :
       {"", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z", "2026-13-02T03:04:05Z",
        "2026-02-29T03:04:05Z", "2026-01-02T24:04:05Z", "2026-01-02T03:60:05Z",
        "26-01-02T03:04:05Z", "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05.1234567Z",
        "2026-01-02T03:04:05ZZ", "9999-01-02T03:04:05Z"})
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
}

}  // namespace
}  // namespace dstune
