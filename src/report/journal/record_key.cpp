#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "dstune/report/history.hpp"

namespace dstune {

namespace {

constexpr std::uint64_t c1 = 0x87c37b91114253d5;
constexpr std::uint64_t c2 = 0x4cf5ad432745937f;

/// Up to eight bytes, the first one lowest, whatever the machine's order.
std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 8; ++i)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return word;
}

std::uint64_t mix_low(std::uint64_t word) {
  return std::rotl(word * c1, 31) * c2;
}

std::uint64_t mix_high(std::uint64_t word) {
  return std::rotl(word * c2, 33) * c1;
}

std::uint64_t finish(std::uint64_t hash) {
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccd;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53;
  hash ^= hash >> 33;
  return hash;
}

}  // namespace

std::string hash128(std::string_view bytes) {
  std::uint64_t h1 = 0;
  std::uint64_t h2 = 0;
  std::string_view rest = bytes;
  for (; rest.size() >= 16; rest.remove_prefix(16)) {
    h1 ^= mix_low(little_endian(rest.substr(0, 8)));
    h1 = (std::rotl(h1, 27) + h2) * 5 + 0x52dce729;
    h2 ^= mix_high(little_endian(rest.substr(8, 8)));
    h2 = (std::rotl(h2, 31) + h1) * 5 + 0x38495ab5;
  }
  if (rest.size() > 8) h2 ^= mix_high(little_endian(rest.substr(8)));
  if (!rest.empty()) h1 ^= mix_low(little_endian(rest.substr(0, 8)));

  h1 ^= bytes.size();
  h2 ^= bytes.size();
  h1 += h2;
  h2 += h1;
  h1 = finish(h1);
  h2 = finish(h2);
  h1 += h2;
  h2 += h1;
  return fmt::format("{:016x}{:016x}", h1, h2);
}

namespace {

void append_text(std::string& out, const std::string& text) {
  // The length in front keeps "a","b" and "a,b" apart whatever the text holds.
  out += fmt::format("s{}:", text.size());
  out += text;
}

/// 5e8 and 500000000 are the same number, and so are -0.0 and 0.
void append_float(std::string& out, double number) {
  if (std::trunc(number) == number && number >= -0x1p63 && number < 0x1p63)
    out += fmt::format("n{}", static_cast<std::int64_t>(number));
  else if (std::trunc(number) == number && number > 0 && number < 0x1p64)
    out += fmt::format("n{}", static_cast<std::uint64_t>(number));
  else
    out += fmt::format("n{:.17g}", number);
}

void append_canonical(std::string& out, const json::Value& value) {
  if (value.is_object()) {
    std::vector<std::pair<const std::string*, const json::Value*>> members;
    for (const auto& member : value.items()) members.emplace_back(&member.key(), &member.value());
    std::sort(members.begin(), members.end(),
              [](const auto& a, const auto& b) { return *a.first < *b.first; });
    out += fmt::format("o{}{{", members.size());
    for (const auto& [key, member] : members) {
      append_text(out, *key);
      append_canonical(out, *member);
    }
    out += '}';
  } else if (value.is_array()) {
    out += fmt::format("a{}[", value.size());
    for (const json::Value& element : value) append_canonical(out, element);
    out += ']';
  } else if (value.is_string()) {
    append_text(out, value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    append_float(out, value.get<double>());
  } else if (value.is_number_unsigned()) {
    out += fmt::format("n{}", value.get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    out += fmt::format("n{}", value.get<std::int64_t>());
  } else if (value.is_boolean()) {
    out += value.get<bool>() ? 't' : 'f';
  } else {
    out += '0';
  }
}

}  // namespace

std::string record_key(const json::Value& identity) {
  std::string canonical;
  append_canonical(canonical, identity);
  return hash128(canonical);
}

}  // namespace dstune
